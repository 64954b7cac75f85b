"""Games from reset to end: the model's input, the graded row and failures."""

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from nemo_gym import (
    BaseResetRequest,
    BaseResetResponse,
    BaseStepRequest,
    BaseStepResponse,
    DataError,
    EnvironmentFailed,
    ModelFailed,
    NeMoGymResponse,
    ServerCallError,
    SessionState,
    SteppedResourcesServer,
    current_rollout_id,
)
from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import FakeModel, call, make_server, on_a_port, reply, run, serving
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentConfig

ARENA = {"type": "resources_servers", "name": "arena"}
POLICY = {"type": "responses_api_models", "name": "policy_model"}


class Round(SessionState):
    turns: int = 0
    left: int = 5
    roles: list[str] = []  # noqa: RUF012


class Arena(SteppedResourcesServer):
    """An environment with three turns of 0.5 each; texts trigger special cases."""

    steps_seen: list[JsonObject] = []  # noqa: RUF012
    rollouts_seen: list[str | None] = []  # noqa: RUF012
    info: JsonObject = {}  # noqa: RUF012

    async def reset(self, body: BaseResetRequest, round_: Round) -> BaseResetResponse:
        self.rollouts_seen.append(current_rollout_id())
        if body.responses_create_params.user == "nobody":
            raise RuntimeError("no seat left")
        return BaseResetResponse(observation=None if body.responses_create_params.user == "blind" else "Begin.")

    async def step(self, request: Request, body: BaseStepRequest, round_: Round) -> BaseStepResponse:
        self.rollouts_seen.append(current_rollout_id())
        self.steps_seen.append(await request.json())
        round_.turns += 1
        text = body.response.last_text
        if text == "explode":
            raise RuntimeError("bang")
        calls = [{"call_id": each.call_id, "output": {"called": each.name}} for each in body.response.tool_calls]
        return BaseStepResponse(
            observation=None if text == "hush" else f"Turn {round_.turns} is over.",
            reward=0.5,
            terminated=round_.turns == 3,
            truncated=text == "stop",
            info={**self.info, "tool_outputs": [each for each in calls if each["output"]["called"] != "ignored"]},
        )


@pytest.fixture
def arena():
    built = make_server(Arena, name="arena")
    built.steps_seen, built.rollouts_seen = [], []
    return built


def agent_on(server: Arena, *replies: object, **settings: object) -> GymnasiumAgent:
    model = FakeModel(replies or ["go"])
    return make_server(
        GymnasiumAgent, model=model, servers=[server], **{"resources_server": ARENA, "name": "agent", **settings}
    )


def asked(agent: GymnasiumAgent) -> list[list[object]]:
    """Return the model's requests, turn by turn, as texts and types."""
    requests = agent.server_client._connections.model.requests
    return [[item.get("content", item.get("output", item.get("type"))) for item in each["input"]] for each in requests]


def changed(response: NeMoGymResponse, **fields: object) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**response.model_dump(), **fields})


async def test_game_rewards_are_summed(arena):
    agent = agent_on(arena, "one", "two", "three", "four")
    graded = await run(agent, responses_create_params={"input": "Play."}, extra={"deep": [None]})
    assert (graded.reward, graded.steps, graded.terminated, graded.truncated) == (1.5, 3, True, False)
    assert graded.extra == {"deep": [None]}
    assert graded.response.output_text == "onetwothree"
    observed = [item.content for item in graded.response.output if getattr(item, "role", "") == "user"]
    assert observed == ["Turn 1 is over.", "Turn 2 is over.", "Turn 3 is over."]


@pytest.mark.parametrize("skips", [False, True])
async def test_graded_row_has_input_of_first_turn(arena, skips):
    agent = agent_on(arena, skip_verification=skips)
    graded = await run(agent, responses_create_params={"input": "Play.", "temperature": 0.5})
    params = graded.responses_create_params
    assert [item.content for item in params.input] == asked(agent)[0] == ["Play.", "Begin."]
    assert params.temperature == 0.5
    assert {each["responses_create_params"]["input"] for each in arena.steps_seen} == {"Play."}


async def test_row_without_observation_stays_unchanged(arena):
    params = {"input": "Play.", "user": "blind"}
    graded = await run(agent_on(arena), responses_create_params=params)
    assert graded.responses_create_params.model_dump(exclude_unset=True) == params


async def test_model_sees_row_and_observations(arena):
    agent = agent_on(arena)
    await run(agent, responses_create_params={"input": [{"role": "system", "content": "Rules."}], "temperature": 0.5})
    first, _, third = asked(agent)
    assert first == ["Rules.", "Begin."]
    assert third[:2] == first
    assert third[3::2] == ["Turn 1 is over.", "Turn 2 is over."]
    assert {each["temperature"] for each in agent.server_client._connections.model.requests} == {0.5}


async def test_each_step_has_row_turn_and_id(arena):
    await run(agent_on(arena, "one", "two", "three"), extra=1)
    turns = [each["response"]["output"] for each in arena.steps_seen]
    texts = [[part["text"] for item in turn for part in item["content"]] for turn in turns]
    assert texts == [["one"], ["two"], ["three"]]
    assert {each["extra"] for each in arena.steps_seen} == {1}
    assert len({each["_ng_step_request_id"] for each in arena.steps_seen}) == 3


async def test_truncated_game_ends_the_rollout(arena):
    graded = await run(agent_on(arena, "go", "stop"))
    assert (graded.reward, graded.steps, graded.terminated, graded.truncated) == (1.0, 2, False, True)


@pytest.mark.parametrize(("max_steps", "steps"), [(1, 1), (2, 2), (3, 3), (None, 3)])
async def test_game_ends_after_max_steps(arena, max_steps, steps):
    graded = await run(agent_on(arena, max_steps=max_steps))
    assert (graded.reward, graded.steps, graded.terminated) == (0.5 * steps, steps, steps == 3)


async def test_calls_without_output_get_a_note(arena):
    turn = reply("hush", call("look"), call("ignored"))
    agent = agent_on(arena, turn, "go")
    graded = await run(agent, responses_create_params={"input": []})
    outputs = [item.output for item in graded.response.output if item.type == "function_call_output"]
    assert outputs == ['{"called":"look"}', "The environment has not answered this call."]
    assert asked(agent)[1][-2:] == outputs


async def test_missing_observation_adds_no_message(arena):
    agent = agent_on(arena, "hush")
    await run(agent)
    assert [len(each) for each in asked(agent)] == [1, 2, 3]


async def test_truncated_answer_counts_as_turn(arena):
    cut = changed(reply("I was about to"), incomplete_details={"reason": "max_output_tokens"})
    assert (await run(agent_on(arena, cut))).steps == 3


async def test_usage_of_all_turns_is_summed(arena):
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    graded = await run(agent_on(arena, changed(reply("go"), usage=usage)))
    assert (graded.response.usage.input_tokens, graded.response.usage.total_tokens) == (30, 36)


async def test_reward_matches_replay_of_the_response(arena):
    graded = await run(agent_on(arena, reply("a", call("look")), reply("b", "c"), "stop"))
    async with serving(arena) as client:
        again = await client.post("/verify", content=graded.model_dump_json())
    assert (again.json()["reward"], again.json()["steps"]) == (graded.reward, graded.steps)


async def test_every_call_has_the_rollout_id(arena):
    await run(agent_on(arena), _ng_rollout_id="r-1")
    assert arena.rollouts_seen == ["r-1"] * 4


async def test_concurrent_games_are_isolated_and_cleaned_up(arena):
    agent = agent_on(arena)
    async with serving(agent):
        assert [(await run(agent)).reward for _ in range(2)] == [1.5, 1.5]
        assert len(arena.sessions) == 0


FAILURES = {
    "reset": (["go"], {"user": "nobody"}, "arena: /reset raised RuntimeError: no seat left"),
    "step": (["go", "explode"], {}, "arena: /step raised RuntimeError: bang"),
}


@pytest.mark.parametrize("stage", FAILURES)
async def test_failing_environment_fails_rollout_and_closes_game(arena, stage):
    replies, params, message = FAILURES[stage]
    agent = agent_on(arena, *replies)
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match=message) as failed:
            await run(agent, responses_create_params={"input": [], **params})
        assert failed.value.server == "arena"
        assert len(arena.sessions) == 0


async def test_failed_game_keeps_its_transcript(arena):
    async with on_a_port(agent_on(arena, "go", "explode")) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/run", json={"responses_create_params": {"input": "Play."}}, timeout=60)
    kept = answer.json()["conversation"]
    said = [item["content"] for item in kept["items"]]
    assert [text if isinstance(text, str) else text[0]["text"] for text in said] == [
        "go",
        "Turn 1 is over.",
        "explode",
    ]


async def test_missing_model_server_is_a_model_failure(arena):
    agent = make_server(GymnasiumAgent, servers=[arena], resources_server=ARENA)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="policy_model"):
            await run(agent)
        assert len(arena.sessions) == 0


async def test_missing_resources_server_is_an_environment_failure(arena):
    with pytest.raises(EnvironmentFailed, match="'elsewhere'"):
        await run(agent_on(arena, resources_server={**ARENA, "name": "elsewhere"}))


class Foreign(Arena):
    """A server that does not use the base class's routes. It has one game and records its requests."""

    info: JsonObject = {}  # noqa: RUF012
    asked: list[tuple[str, JsonObject]] = []  # noqa: RUF012
    answer: JsonObject = {"observation": None, "reward": 1, "terminated": True, "truncated": False}  # noqa: RUF012

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()

        async def reset(request: Request) -> JSONResponse:
            self.asked.append(("/reset", await request.json()))
            return JSONResponse({"observation": "Begin.", "info": self.info}, headers={"set-cookie": "seat=7"})

        async def step(request: Request) -> object:
            self.asked.append(("/step", await request.json()))
            assert request.cookies == {"seat": "7"}
            return self.answer

        async def close(request: Request) -> None:
            self.asked.append(("/close", request.cookies))

        for path, method in (("/reset", reset), ("/step", step), ("/close", close)):
            app.post(path)(method)
        return app


def foreign(**fields: object) -> Foreign:
    built = make_server(Foreign, name="arena")
    built.asked = []
    for name, value in fields.items():
        setattr(built, name, value)
    return built


async def test_optional_features_are_not_used_unless_supported():
    server = foreign()
    assert (await run(agent_on(server))).reward == 1.0
    assert [path for path, _ in server.asked] == ["/reset", "/step"]
    assert "_ng_step_request_id" not in server.asked[1][1]


async def test_supported_close_is_called_with_cookie():
    server = foreign(info={"supports_explicit_close": True})
    await run(agent_on(server))
    assert server.asked[-1] == ("/close", {"seat": "7"})


class LosingAnswers(GymnasiumAgent):
    """An agent whose connections lose the first replies to a step."""

    def losing(self, count: int) -> "LosingAnswers":
        connections = self.server_client._connections
        request, lost = connections.request, [None] * count

        async def losing(method: str, host: str, port: int, path: str, **rest: object) -> object:
            answer = await request(method, host, port, path, **rest)
            if path == "/step" and lost:
                lost.pop()
                raise ServerCallError("the connection was lost")
            return answer

        connections.request = losing
        return self


def losing_agent(server: Arena, count: int) -> GymnasiumAgent:
    return make_server(
        LosingAnswers, model=FakeModel(["go"]), servers=[server], resources_server=ARENA, model_server=POLICY
    ).losing(count)


async def test_step_with_lost_reply_is_retried_once(arena):
    graded = await run(losing_agent(arena, 2))
    assert (graded.reward, graded.steps, len(arena.steps_seen)) == (1.5, 3, 3)


async def test_lost_reply_fails_rollout_without_idempotency():
    server = foreign()
    with pytest.raises(EnvironmentFailed, match="the connection was lost"):
        await run(losing_agent(server, 1))
    assert [path for path, _ in server.asked] == ["/reset", "/step"]


async def test_empty_step_reply_continues_the_game():
    assert (await run(agent_on(foreign(answer={}), max_steps=2))).steps == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"observation": 7},
        {"reward": "much"},
        {"reward": "inf"},
        {"terminated": None},
        {"info": {"tool_outputs": {"c": "x"}}},
        {"info": {"tool_outputs": [{"call_id": "c"}]}},
    ],
)
async def test_invalid_step_reply_is_an_environment_failure(answer):
    with pytest.raises(EnvironmentFailed, match=f"the reply of /step is not valid: .*{next(iter(answer))}"):
        await run(agent_on(foreign(answer=answer)))


async def test_skipped_verification_is_marked(arena):
    graded = await run(agent_on(arena, skip_verification=True, skip_verification_reward=0.25))
    assert (graded.reward, graded.verification_skipped, graded.steps) == (0.25, True, 3)


async def test_metrics_come_from_the_resources_server(arena):
    rows = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}
    async with serving(agent_on(arena)) as client:
        assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"]["mean/reward"] == 0.5
    async with serving(agent_on(arena, skip_verification=True)) as client:
        with pytest.warns(RuntimeWarning, match="verification was skipped"):
            assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"] == {}


async def test_responses_route_returns_the_next_turn(arena):
    agent = agent_on(arena, "Hello.")
    async with serving(agent) as client:
        answered = (await client.post("/v1/responses", json={"input": "Hi."})).json()
    assert answered["output"][0]["content"][0]["text"] == "Hello."
    assert asked(agent) == [["Hi."]]


def test_invalid_settings_are_rejected():
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    for wrong in ({"max_steps": 0}, {"resources_server": {"name": "x"}}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GymnasiumAgentConfig.model_validate({"resources_server": ARENA, **given, **wrong})


class Nim(SteppedResourcesServer):
    """A game of two agents: whoever takes the last of five matches wins."""

    ends_without_rewards: bool = False
    asks: str | None = None
    pays: object = None

    async def reset(self, request: Request, body: BaseResetRequest, round_: Round) -> BaseResetResponse:
        round_.roles = (await request.json())["roles"]
        return BaseResetResponse(observation="5 are left.", info={"role": round_.roles[0]})

    async def step(self, body: BaseStepRequest, round_: Round) -> BaseStepResponse:
        mover, other = round_.roles[round_.turns % 2], round_.roles[1 - round_.turns % 2]
        round_.turns += 1
        round_.left -= int(body.response.last_text)
        is_over = round_.left <= 0
        rewards = {mover: 1.0, other: -1.0} if is_over and not self.ends_without_rewards else {}
        return BaseStepResponse(
            observation="It is over." if is_over else f"{round_.left} are left.",
            terminated=is_over,
            info={"role": self.asks or other, "rewards": self.pays or rewards},
        )


PLAYERS = [{"type": "responses_api_agents", "name": "first"}, {"type": "responses_api_agents", "name": "second"}]


def nim_agent(first: object, second: object, players: object = PLAYERS) -> GymnasiumAgent:
    """Return an agent whose two players are agents with a model of their own."""
    nim = make_server(Nim, name="arena")
    models = {"first": FakeModel(first), "second": FakeModel(second)}
    others = [
        make_server(GymnasiumAgent, name=name, model=model, resources_server=ARENA) for name, model in models.items()
    ]
    return make_server(GymnasiumAgent, servers=[nim, *others], resources_server=ARENA, name="agent", players=players)


def nim_of(agent: GymnasiumAgent) -> Nim:
    return agent.server_client._servers["arena"]


async def test_each_player_has_a_conversation_and_a_reward():
    graded = await run(nim_agent(["2", "1"], ["2"]), responses_create_params={"input": "Take 1 or 2."})
    assert (graded.reward, graded.steps, graded.terminated) == (1.0, 3, True)
    first, second = graded.roles["first"], graded.roles["second"]
    assert (first["reward"], second["reward"]) == (1.0, -1.0)
    assert texts_of(first) == ["Take 1 or 2.", "5 are left.", "2", "1 are left.", "1"]
    assert texts_of(second) == ["Take 1 or 2.", "3 are left.", "2", "It is over."]


async def test_tokens_of_all_players_count():
    def used(text, tokens):
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return changed(reply(text), usage=usage | details)

    agent = nim_agent([used("2", 10), used("1", 20)], [used("2", 400)])
    graded = await run(agent, responses_create_params={"input": "Take 1 or 2."})
    assert (graded.response.usage.input_tokens, graded.user_usage["input_tokens"]) == (30, 400)
    assert graded.user_model == graded.response.model


async def test_an_opponent_that_is_not_trained_is_no_role():
    players = [PLAYERS[0], {**PLAYERS[1], "trainable": False}]
    graded = await run(nim_agent(["2", "1"], ["2"], players), responses_create_params={"input": "Take 1 or 2."})
    assert list(graded.roles) == ["first"]


async def test_a_game_without_rewards_of_all_players_fails():
    agent = nim_agent(["2", "1"], ["2"])
    nim_of(agent).ends_without_rewards = True
    with pytest.raises(EnvironmentFailed, match="without a reward for each of the players first, second"):
        await run(agent, responses_create_params={"input": "Take 1 or 2."})


@pytest.mark.parametrize("rewards", [[1.0, -1.0], {"first": "1", "second": 0.0}])
async def test_a_game_with_invalid_rewards_fails(rewards):
    agent = nim_agent(["2", "1"], ["2"])
    nim_of(agent).pays = rewards
    with pytest.raises(EnvironmentFailed, match="not finite numbers by player"):
        await run(agent, responses_create_params={"input": "Take 1 or 2."})


async def test_one_player_ignores_roles_and_rewards_in_info(arena):
    arena.info = {"role": "guesser", "rewards": [0.5]}
    graded = await run(agent_on(arena, "go"), responses_create_params={"input": "Play."})
    assert graded.reward == 1.5


async def test_a_game_that_asks_an_unknown_player_fails():
    agent = nim_agent(["2", "1"], ["2"])
    nim_of(agent).asks = "third"
    with pytest.raises(EnvironmentFailed, match="asks 'third' for a move, but the players are first, second"):
        await run(agent, responses_create_params={"input": "Take 1 or 2."})


@pytest.mark.parametrize(("players", "problem"), [([PLAYERS[0]] * 2, "same agent"), (PLAYERS[:1], "two or more")])
def test_players_are_two_or_more_different_agents(players, problem):
    with pytest.raises(DataError, match=problem):
        nim_agent(["2"], ["2"], players)


def texts_of(part: JsonObject) -> list[str]:
    items = [*part["responses_create_params"]["input"], *part["response"]["output"]]
    contents = [item["content"] for item in items]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]
