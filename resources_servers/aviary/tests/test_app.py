"""The server's protocol: seed, step, verify and close, with many kinds of environments."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym import EnvironmentFailed
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, on_a_port, reply, rollout, serving

# Checked before the imports below, because the extra may be missing.
pytest.importorskip("aviary.core", reason="Aviary is an extra: pip install 'nemo-gym[aviary]'")

import httpx
from aviary.core import Environment, Message, Tool, ToolRequestMessage, ToolResponseMessage

from resources_servers.aviary.app import AviaryServer
from resources_servers.aviary.oracle import solve

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))
ROW = {"responses_create_params": {"input": []}, "task_idx": 0}


class Scripted(Environment[None]):
    """An environment with scripted steps that records its actions."""

    opened: list["Scripted"] = []  # noqa: RUF012

    def __init__(self, steps: Any = (), fails: str = "") -> None:
        self.steps, self.fails = list(steps), fails
        self.seen: list[Any] = []
        self.is_closed = False
        self.tools = [Tool.from_function(self.say)]
        Scripted.opened.append(self)

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        return word

    async def reset(self):
        if self.fails == "reset":
            raise KeyError("the cellar")
        return [Message(role="system", content="Rules."), Message(content="Begin.")], self.tools

    async def step(self, action):
        self.seen.append(action)
        if self.fails == "step":
            raise KeyError("the cellar")
        reward, done, truncated = self.steps.pop(0) if self.steps else (0.0, False, False)
        if not isinstance(action, ToolRequestMessage):
            return [Message(content="Call something.")], reward, done, truncated
        return await self.exec_tool_calls(action), reward, done, truncated

    async def close(self):
        self.is_closed = True


class OlderStyle(Scripted):
    """An environment whose step takes only requests."""

    async def step(self, action: ToolRequestMessage):
        self.seen.append(action)
        return [Message(content=f"{len(action.tool_calls)} calls")], 0.0, False, False


class Odd(Scripted):
    """An environment that answers an unknown call instead of the real one."""

    async def step(self, action):
        stray = ToolResponseMessage(content="stray", name="say", tool_call_id="of no call")
        return [Message(content="first"), stray], 0.5, False, False


def server_of(cls=Scripted, **kwargs):
    Scripted.opened = []
    return make_server(
        AviaryServer, dataset=None, environment=f"{cls.__module__}:{cls.__name__}", environment_kwargs=kwargs
    )


def function_call(name="say", arguments='{"word": "hush"}', call_id="call_1"):
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}


def message(text):
    return reply(text).output[0].model_dump()


async def seeded(client, row=ROW):
    return (await client.post("/seed_session", json=row)).json()


async def stepped(client, env_id, *action):
    return (await client.post("/step", json={"env_id": env_id, "action": list(action)})).json()


async def test_seeding_returns_first_observation_and_tools():
    async with serving(server_of()) as client:
        seed_reply = await seeded(client)
    assert seed_reply["obs"] == [
        {"type": "message", "role": "system", "content": "Rules."},
        {"type": "message", "role": "user", "content": "Begin."},
    ]
    (tool,) = seed_reply["tools"]
    assert (tool["type"], tool["name"], tool["description"], tool["strict"]) == (
        "function", "say", "Say a word.", False,
    )  # fmt: skip
    assert tool["parameters"]["required"] == ["word"]
    assert seed_reply["env_id"]


async def test_step_returns_observation_reward_and_done():
    async with serving(server_of(steps=[(0.25, False, False), (0.5, True, False)])) as client:
        env_id = (await seeded(client))["env_id"]
        assert await stepped(client, env_id, function_call()) == {
            "obs": [{"type": "function_call_output", "call_id": "call_1", "output": "hush"}],
            "reward": 0.25,
            "done": False,
        }
        last = await stepped(client, env_id, message("I am done."))
        assert last == {
            "obs": [{"type": "message", "role": "user", "content": "Call something."}],
            "reward": 0.5,
            "done": True,
        }
        graded = (await client.post("/verify", json={**ROW, "response": reply("x").model_dump()})).json()
    assert graded["reward"] == 0.75
    assert [(each["reward"], each["done"]) for each in graded["transitions"]] == [(0.25, False), (0.5, True)]
    assert graded["transitions"][0]["action"] == [function_call()]
    assert graded["transitions"][1]["obs"] == last["obs"]
    assert Scripted.opened[0].is_closed


async def test_truncated_environment_is_done():
    async with serving(server_of(steps=[(0.0, False, True)])) as client:
        assert (await stepped(client, (await seeded(client))["env_id"], function_call()))["done"] is True


async def test_environment_sees_a_turns_text_and_calls():
    async with serving(server_of()) as client:
        env_id = (await seeded(client))["env_id"]
        await stepped(client, env_id, message("Let me see."), function_call(), function_call(call_id="call_2"))
        await stepped(client, env_id, message("Enough."))
    first, second = Scripted.opened[0].seen
    assert (first.content, [each.id for each in first.tool_calls]) == ("Let me see.", ["call_1", "call_2"])
    assert first.tool_calls[0].function.arguments == {"word": "hush"}
    assert (type(second), second.role, second.content) == (Message, "assistant", "Enough.")


async def test_request_only_step_gets_a_request_without_calls():
    async with serving(server_of(OlderStyle)) as client:
        step = await stepped(client, (await seeded(client))["env_id"], message("Well?"))
    assert step["obs"][0]["content"] == "0 calls"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "not valid JSON"),
        ("[" * 300_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
        ('{"word": "\\ud800"}', "not valid JSON"),
        ('{"\\ud800": "word"}', "not valid JSON"),
        ('"hush"', "expected a JSON object, found str"),
        ("null", "expected a JSON object, found NoneType"),
        ("", "'word' is missing"),
        ('{"word": 3}', "'word' must be of type string"),
        ('{"word": true}', "'word' must be of type string"),
        ('{"word": "a", "tone": "low"}', "'tone' is not an argument"),
    ],
)
async def test_wrong_arguments_are_reported_and_marked_invalid(arguments, problem):
    async with serving(server_of()) as client:
        env_id = (await seeded(client))["env_id"]
        step = await stepped(client, env_id, function_call(arguments=arguments), function_call(call_id="call_2"))
    answers = {each["call_id"]: each["output"] for each in step["obs"]}
    assert problem in answers["call_1"]
    assert answers["call_2"] == "hush"
    assert [each.function.name for each in Scripted.opened[0].seen[0].tool_calls] == ["INVALID", "say"]


async def test_environment_answers_calls_of_unknown_tools():
    async with serving(server_of()) as client:
        step = await stepped(client, (await seeded(client))["env_id"], function_call(name="sing"))
    assert step["obs"][0]["output"] == "Invalid tool call: sing"


async def test_every_call_gets_an_output():
    async with serving(server_of(Odd)) as client:
        step = await stepped(client, (await seeded(client))["env_id"], function_call())
    assert step["obs"] == [
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": "The environment has not answered this call.",
        },
        {"type": "message", "role": "user", "content": "first"},
        {"type": "message", "role": "user", "content": "stray"},
    ]


async def test_calls_with_the_same_id_are_both_answered():
    async with serving(server_of()) as client:
        step = await stepped(client, (await seeded(client))["env_id"], function_call(), function_call())
    assert [each["output"] for each in step["obs"]] == ["hush", "hush"]


@pytest.mark.parametrize("fails", ["reset", "step"])
async def test_environment_error_fails_the_rollout_with_its_name(fails):
    async with on_a_port(server_of(fails=fails)) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        answer = await client.post("/seed_session", json=ROW)
        if fails == "step":
            action = {"env_id": answer.json()["env_id"], "action": [function_call()]}
            answer = await client.post("/step", json=action)
    assert answer.status_code >= 500
    problem = answer.json()
    assert problem["failure_class"] == "environment_failed"
    assert f"Scripted (task_idx 0): {fails} raised KeyError: 'the cellar'" in problem["detail"]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "much"])
async def test_non_finite_reward_fails_the_rollout(reward):
    async with serving(server_of(steps=[(reward, False, False)])) as client:
        env_id = (await seeded(client))["env_id"]
        with pytest.raises(EnvironmentFailed, match=r"not finite|could not convert"):
            await stepped(client, env_id, function_call())


async def test_failed_reset_closes_the_environment():
    async with serving(server_of(fails="reset")) as client:
        with pytest.raises(EnvironmentFailed):
            await seeded(client)
    assert Scripted.opened[0].is_closed


async def test_step_needs_an_open_environment():
    async with serving(server_of()) as client:
        with pytest.raises(EnvironmentFailed, match="environment 'nowhere' is not open"):
            await stepped(client, "nowhere", function_call())
        with pytest.raises(EnvironmentFailed, match="POST /seed_session opens one"):
            await client.post("/say", json={"word": "hush"})


async def test_calls_out_of_turn_are_client_errors():
    async with (
        on_a_port(server_of(steps=[(1.0, True, False)])) as url,
        httpx.AsyncClient(base_url=url, verify=False) as client,
    ):
        action = [function_call()]
        answers = [await client.post("/step", json={"action": action}), await client.post("/say", json={})]
        env_id = (await client.post("/seed_session", json=ROW)).json()["env_id"]
        for _ in range(2):
            answers.append(await client.post("/step", json={"env_id": env_id, "action": action}))
    assert [each.status_code for each in answers] == [409, 409, 200, 409]
    assert answers[0].json()["failure_class"] == "environment_failed"


async def test_step_after_the_end_is_rejected():
    async with serving(server_of(steps=[(1.0, True, False)])) as client:
        env_id = (await seeded(client))["env_id"]
        await stepped(client, env_id, function_call())
        with pytest.raises(EnvironmentFailed, match="the task is over"):
            await stepped(client, env_id, function_call())
        answer = await client.post("/say", json={"word": "hush"})
    assert (answer.status_code, "over" in answer.text) == (422, True)


async def test_close_closes_the_environment_once():
    async with serving(server_of()) as client:
        env_id = (await seeded(client))["env_id"]
        assert (await client.post("/close", json={"env_id": env_id})).json() == {"closed": True}
        assert Scripted.opened[0].is_closed
        assert (await client.post("/close")).json() == {"closed": False}


async def test_env_id_alone_selects_the_environment():
    server = server_of(steps=[(0.5, False, False)])
    async with serving(server) as keeper, serving(server) as client:
        env_id = (await seeded(keeper))["env_id"]
        await stepped(client, env_id, function_call())
        body = {**ROW, "env_id": env_id, "response": reply("x").model_dump()}
        assert (await client.post("/verify", json=body)).json()["reward"] == 0.5
    assert len(Scripted.opened) == 1
    assert Scripted.opened[0].is_closed


async def test_each_rollout_has_its_own_environment():
    server = server_of(steps=[(0.5, False, False)])
    async with serving(server) as one, serving(server) as other:
        first, second = (await seeded(one))["env_id"], (await seeded(other))["env_id"]
        rewards = [(await stepped(one, each, function_call()))["reward"] for each in (first, second, first)]
    assert rewards == [0.5, 0.5, 0.0]


async def test_verify_replays_a_response_that_was_not_stepped():
    server = server_of(steps=[(0.5, False, False), (0.25, True, False), (8.0, False, False)])
    async with serving(server) as client:
        body = {**ROW, "response": reply(call("say", word="a"), "b", "c").model_dump()}
        graded = (await client.post("/verify", json=body)).json()
    assert (graded["reward"], len(graded["transitions"])) == (0.75, 2)
    assert Scripted.opened[0].is_closed


async def test_tool_route_performs_a_step():
    async with rollout(server_of(steps=[(0.5, False, False), (0.25, False, False)]), **ROW) as attempt:
        assert await attempt.call("say", word="hush") == "hush"
        assert "'word' is missing" in await attempt.call("say")
        assert (await attempt.verify()).reward == 0.75


async def test_regrading_a_stored_rollout_gives_the_same_reward():
    server, row = make_server(AviaryServer), EXAMPLES[0]
    items = solve(row)[:-1]
    async with rollout(server, **row) as attempt:
        for item in items:
            await attempt.send(item)
        first = await attempt.verify(reply(*items))
    assert 0 < first.reward < 1
    async with serving(server) as client:
        stored = {**row, "response": first.response.model_dump()}
        again = (await client.post("/verify", json=stored)).json()
    assert again["reward"] == first.reward
    assert len(again["transitions"]) == len(items)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["task_idx"])
async def test_oracle_earns_full_reward_and_silence_none(row):
    server = make_server(AviaryServer)
    async with rollout(server, **row) as attempt:
        for item in solve(row):
            await attempt.send(item)
        graded = await attempt.verify()
    assert graded.reward == pytest.approx(1.0)
    assert graded.transitions[-1]["done"] is True
    async with rollout(server, **row) as attempt:
        assert (await attempt.verify(reply(""))).reward == 0.0


async def test_taking_an_exhibit_away_costs_its_reward():
    row = EXAMPLES[0]
    items = solve(row)
    first_put = next(number for number, item in enumerate(items) if item.name == "put")
    async with rollout(make_server(AviaryServer), **row) as attempt:
        for item in items[: first_put + 1]:
            await attempt.send(item)
        await attempt.send(items[first_put].model_copy(update={"name": "take"}))
        graded = await attempt.verify()
    rewards = [each["reward"] for each in graded.transitions]
    assert rewards[-2] == pytest.approx(1 / 3)
    assert (rewards[-1], graded.reward) == (-rewards[-2], 0.0)
