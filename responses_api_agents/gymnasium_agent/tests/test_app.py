"""A game from its reset to its end: what the model is told, what comes back, and how a rollout fails."""

from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from nemo_gym import (
    BaseResetRequest,
    BaseResetResponse,
    BaseStepRequest,
    BaseStepResponse,
    EnvironmentFailed,
    ModelFailed,
    NeMoGymResponse,
    ServerCallError,
    SessionState,
    SteppedResourcesServer,
    current_rollout_id,
)
from nemo_gym.testing import FakeModel, call, make_server, reply, run, serving
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentConfig

ARENA = {"type": "resources_servers", "name": "arena"}
POLICY = {"type": "responses_api_models", "name": "policy_model"}


class Round(SessionState):
    turns: int = 0


class Arena(SteppedResourcesServer):
    """Three turns of 0.5 each; texts decide what else happens."""

    steps_seen: list[dict[str, Any]] = []  # noqa: RUF012
    rollouts_seen: list[str | None] = []  # noqa: RUF012

    async def reset(self, body: BaseResetRequest, round_: Round) -> BaseResetResponse:
        self.rollouts_seen.append(current_rollout_id())
        if body.responses_create_params.user == "nobody":
            raise RuntimeError("no seat left")
        return BaseResetResponse(observation="Begin.")

    async def step(self, request: Request, body: BaseStepRequest, round_: Round) -> BaseStepResponse:
        self.rollouts_seen.append(current_rollout_id())
        self.steps_seen.append(await request.json())
        round_.turns += 1
        text = body.response.last_text
        if text == "explode":
            raise RuntimeError("bang")
        calls = [{"call_id": each.call_id, "output": {"told": each.name}} for each in body.response.tool_calls]
        return BaseStepResponse(
            observation=None if text == "hush" else f"Turn {round_.turns} is over.",
            reward=0.5,
            terminated=round_.turns == 3,
            truncated=text == "stop",
            info={"tool_outputs": [each for each in calls if each["output"]["told"] != "ignored"]},
        )


@pytest.fixture
def arena():
    built = make_server(Arena, name="arena")
    built.steps_seen, built.rollouts_seen = [], []
    return built


def agent_on(server: Any, *replies: Any, **settings: Any) -> GymnasiumAgent:
    model = FakeModel(replies or ["go"])
    return make_server(
        GymnasiumAgent, model=model, servers=[server], **{"resources_server": ARENA, "name": "agent", **settings}
    )


def asked(agent: GymnasiumAgent) -> list[list[Any]]:
    """What the model was asked, turn by turn, as texts and types."""
    requests = agent.server_client._connections.model.requests
    return [[item.get("content", item.get("output", item.get("type"))) for item in each["input"]] for each in requests]


def changed(response: NeMoGymResponse, **fields: Any) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**response.model_dump(), **fields})


async def test_a_game_is_played_to_its_end_and_the_rewards_add_up(arena):
    agent = agent_on(arena, "one", "two", "three", "four")
    graded = await run(agent, responses_create_params={"input": "Play."}, extra={"deep": [None]})
    assert (graded.reward, graded.steps, graded.terminated, graded.truncated) == (1.5, 3, True, False)
    assert graded.extra == {"deep": [None]}
    assert graded.responses_create_params.input == "Play."
    assert graded.response.output_text == "onetwothree"
    told = [item.content for item in graded.response.output if getattr(item, "role", "") == "user"]
    assert told == ["Turn 1 is over.", "Turn 2 is over.", "Turn 3 is over."]


async def test_the_model_sees_the_row_the_beginning_and_all_that_followed(arena):
    agent = agent_on(arena)
    await run(agent, responses_create_params={"input": [{"role": "system", "content": "Rules."}], "temperature": 0.5})
    first, _, third = asked(agent)
    assert first == ["Rules.", "Begin."]
    assert third[:2] == first
    assert third[3::2] == ["Turn 1 is over.", "Turn 2 is over."]
    assert {each["temperature"] for each in agent.server_client._connections.model.requests} == {0.5}


async def test_every_step_brings_the_row_and_this_turn_alone_under_an_id_of_its_own(arena):
    await run(agent_on(arena, "one", "two", "three"), extra=1)
    turns = [each["response"]["output"] for each in arena.steps_seen]
    texts = [[part["text"] for item in turn for part in item["content"]] for turn in turns]
    assert texts == [["one"], ["two"], ["three"]]
    assert {each["extra"] for each in arena.steps_seen} == {1}
    assert len({each["_ng_step_request_id"] for each in arena.steps_seen}) == 3


async def test_a_game_that_is_broken_off_ends_the_rollout(arena):
    graded = await run(agent_on(arena, "go", "stop"))
    assert (graded.reward, graded.steps, graded.terminated, graded.truncated) == (1.0, 2, False, True)


@pytest.mark.parametrize(("max_steps", "steps"), [(1, 1), (2, 2), (3, 3), (None, 3)])
async def test_a_game_is_left_after_so_many_turns(arena, max_steps, steps):
    graded = await run(agent_on(arena, max_steps=max_steps))
    assert (graded.reward, graded.steps, graded.terminated) == (0.5 * steps, steps, steps == 3)


async def test_calls_are_answered_by_the_step_and_by_a_sentence_where_it_does_not(arena):
    turn = reply("hush", call("look"), call("ignored"))
    agent = agent_on(arena, turn, "go")
    graded = await run(agent, responses_create_params={"input": []})
    outputs = [item.output for item in graded.response.output if item.type == "function_call_output"]
    assert outputs == ['{"told":"look"}', "The environment has not answered this call."]
    assert asked(agent)[1][-2:] == outputs


async def test_where_nothing_is_observed_nothing_is_told(arena):
    agent = agent_on(arena, "hush")
    await run(agent)
    assert [len(each) for each in asked(agent)] == [1, 2, 3]


async def test_an_answer_that_was_cut_off_is_a_turn(arena):
    cut = changed(reply("I was about to"), incomplete_details={"reason": "max_output_tokens"})
    assert (await run(agent_on(arena, cut))).steps == 3


async def test_the_usage_of_all_turns_adds_up(arena):
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    graded = await run(agent_on(arena, changed(reply("go"), usage=usage)))
    assert (graded.response.usage.input_tokens, graded.response.usage.total_tokens) == (30, 36)


async def test_the_reward_is_what_playing_the_response_again_earns(arena):
    graded = await run(agent_on(arena, reply("a", call("look")), reply("b", "c"), "stop"))
    async with serving(arena) as client:
        again = await client.post("/verify", content=graded.model_dump_json())
    assert (again.json()["reward"], again.json()["steps"]) == (graded.reward, graded.steps)


async def test_every_call_of_a_rollout_carries_its_id(arena):
    await run(agent_on(arena), _ng_rollout_id="r-1")
    assert arena.rollouts_seen == ["r-1"] * 4


async def test_games_do_not_meet_and_none_is_left_behind(arena):
    agent = agent_on(arena)
    async with serving(agent):
        assert [(await run(agent)).reward for _ in range(2)] == [1.5, 1.5]
        assert len(arena.sessions) == 0


FAILURES = {
    "reset": (["go"], {"user": "nobody"}, "arena: /reset raised RuntimeError: no seat left"),
    "step": (["go", "explode"], {}, "arena: /step raised RuntimeError: bang"),
}


@pytest.mark.parametrize("stage", FAILURES)
async def test_a_failing_environment_fails_the_rollout_with_its_cause_and_closes_the_game(arena, stage):
    replies, params, message = FAILURES[stage]
    agent = agent_on(arena, *replies)
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match=message) as failed:
            await run(agent, responses_create_params={"input": [], **params})
        assert failed.value.server == "arena"
        assert len(arena.sessions) == 0


async def test_a_model_server_that_is_not_there_is_the_models_failure(arena):
    agent = make_server(GymnasiumAgent, servers=[arena], resources_server=ARENA)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="policy_model"):
            await run(agent)
        assert len(arena.sessions) == 0


async def test_a_resources_server_that_is_not_there_is_the_environments_failure(arena):
    with pytest.raises(EnvironmentFailed, match="'elsewhere'"):
        await run(agent_on(arena, resources_server={**ARENA, "name": "elsewhere"}))


class Foreign(Arena):
    """A server that is not built on the base class: it keeps one game, and says what it was asked."""

    info: dict[str, Any] = {}  # noqa: RUF012
    asked: list[tuple[str, Any]] = []  # noqa: RUF012
    answer: dict[str, Any] = {"observation": None, "reward": 1, "terminated": True, "truncated": False}  # noqa: RUF012

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()

        async def reset(request: Request) -> Any:
            self.asked.append(("/reset", await request.json()))
            return JSONResponse({"observation": "Begin.", "info": self.info}, headers={"set-cookie": "seat=7"})

        async def step(request: Request) -> Any:
            self.asked.append(("/step", await request.json()))
            assert request.cookies == {"seat": "7"}
            return self.answer

        async def close(request: Request) -> Any:
            self.asked.append(("/close", request.cookies))

        for path, method in (("/reset", reset), ("/step", step), ("/close", close)):
            app.post(path)(method)
        return app


def foreign(**fields: Any) -> Foreign:
    built = make_server(Foreign, name="arena")
    built.asked = []
    for name, value in fields.items():
        setattr(built, name, value)
    return built


async def test_what_the_environment_does_not_offer_is_not_asked_of_it():
    server = foreign()
    assert (await run(agent_on(server))).reward == 1.0
    assert [path for path, _ in server.asked] == ["/reset", "/step"]
    assert "_ng_step_request_id" not in server.asked[1][1]


async def test_an_environment_that_offers_it_is_closed_with_its_cookie():
    server = foreign(info={"supports_explicit_close": True})
    await run(agent_on(server))
    assert server.asked[-1] == ("/close", {"seat": "7"})


class LosingAnswers(GymnasiumAgent):
    """Its connections lose the first answers to a step."""

    def losing(self, count: int) -> "LosingAnswers":
        connections = self.server_client._connections
        request, lost = connections.request, [None] * count

        async def losing(method: str, host: str, port: int, path: str, **rest: Any) -> Any:
            answer = await request(method, host, port, path, **rest)
            if path == "/step" and lost:
                lost.pop()
                raise ServerCallError("the connection was lost")
            return answer

        connections.request = losing
        return self


def losing_agent(server: Any, count: int) -> GymnasiumAgent:
    return make_server(
        LosingAnswers, model=FakeModel(["go"]), servers=[server], resources_server=ARENA, model_server=POLICY
    ).losing(count)


async def test_a_step_whose_answer_got_lost_is_asked_for_again_and_played_once(arena):
    graded = await run(losing_agent(arena, 2))
    assert (graded.reward, graded.steps, len(arena.steps_seen)) == (1.5, 3, 3)


async def test_where_a_step_cannot_be_told_from_a_new_one_a_lost_answer_fails_the_rollout():
    server = foreign()
    with pytest.raises(EnvironmentFailed, match="the connection was lost"):
        await run(losing_agent(server, 1))
    assert [path for path, _ in server.asked] == ["/reset", "/step"]


async def test_a_step_that_says_nothing_lets_the_game_go_on():
    assert (await run(agent_on(foreign(answer={}), max_steps=2))).steps == 2


@pytest.mark.parametrize("answer", [{"observation": 7}, {"reward": "much"}, {"terminated": None}])
async def test_an_answer_that_is_no_step_is_the_environments_failure(answer):
    with pytest.raises(EnvironmentFailed, match=f"/step answered something else.*{next(iter(answer))}"):
        await run(agent_on(foreign(answer=answer)))


async def test_a_skipped_verification_is_said(arena):
    graded = await run(agent_on(arena, skip_verification=True, skip_verification_reward=0.25))
    assert (graded.reward, graded.verification_skipped, graded.steps) == (0.25, True, 3)


async def test_metrics_are_the_resources_servers(arena):
    rows = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}
    async with serving(agent_on(arena)) as client:
        assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"]["mean/reward"] == 0.5
    async with serving(agent_on(arena, skip_verification=True)) as client:
        with pytest.warns(RuntimeWarning, match="verification was skipped"):
            assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"] == {}


async def test_a_conversation_alone_is_the_models_next_turn(arena):
    agent = agent_on(arena, "Hello.")
    async with serving(agent) as client:
        told = (await client.post("/v1/responses", json={"input": "Hi."})).json()
    assert told["output"][0]["content"][0]["text"] == "Hello."
    assert asked(agent) == [["Hi."]]


def test_settings_that_make_no_sense_are_refused():
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    for wrong in ({"max_steps": 0}, {"resources_server": {"name": "x"}}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GymnasiumAgentConfig.model_validate({"resources_server": ARENA, **given, **wrong})
