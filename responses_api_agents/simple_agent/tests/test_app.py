"""The plain agent's routes: a rollout from row to reward, whose cookies go where, and how it fails."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResponsesAPIModelConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    EnvironmentFailed,
    InvalidTask,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
    current_rollout_id,
    tool,
)
from nemo_gym.testing import FakeModel, call, make_server, reply, run, serving
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)

ARENA = {"type": "resources_servers", "name": "arena"}


class Score(SessionState):
    points: int = 0


class SeedRequest(BaseSeedSessionRequest):
    fails_to_begin: bool = False


class VerifyRequest(BaseVerifyRequest):
    fails_to_grade: bool = False


class Arena(SimpleResourcesServer):
    cookies_seen: list[set[str]] = []  # noqa: RUF012
    rollouts_seen: list[str | None] = []  # noqa: RUF012
    lingered: int = 0

    async def seed_session(self, request: Request, body: SeedRequest, score: Score) -> None:
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        if body.fails_to_begin:
            raise RuntimeError("no board left")

    @tool
    async def score(self, points: int, score: Score, request: Request) -> int:
        """Score points."""
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        score.points += points
        return score.points

    @tool
    async def linger(self) -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        self.lingered += 1
        return "Here I am."

    @tool
    async def explode(self, score: Score) -> str:
        """Be buggy."""
        raise ZeroDivisionError("of nothing")

    async def verify(self, request: Request, body: VerifyRequest, score: Score) -> float:
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        if body.fails_to_grade:
            raise RuntimeError("no ruler")
        return float(score.points)


class Policy(SimpleResponsesAPIModel):
    """A model server of its own, with a session: it scores once, answers, and fails where it is asked to."""

    config: BaseResponsesAPIModelConfig
    cookies_seen: list[set[str]] = []  # noqa: RUF012
    sessions_seen: list[str] = []  # noqa: RUF012

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        self.cookies_seen.append(set(request.cookies))
        self.sessions_seen.append(request.session[SESSION_ID_KEY])
        if body.user == "nobody":
            raise ModelFailed("the endpoint is gone", server="policy_model")
        return reply(call("score", points=1)) if len(body.input) == 0 else reply("Done.")

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


@pytest.fixture
def arena():
    return make_server(Arena, name="arena", cookies_seen=[], rollouts_seen=[])


def agent_on(arena: Arena, *replies: Any, cls: type[SimpleAgent] = SimpleAgent, **settings: Any) -> SimpleAgent:
    model = FakeModel(replies or [call("score", points=1), "Done."])
    return make_server(cls, model=model, servers=[arena], **{"resources_server": ARENA, "name": "agent", **settings})


async def test_the_graded_row_comes_back_with_all_that_the_row_brought(arena):
    row = {"responses_create_params": {"input": "Play.", "metadata": {"a": "b"}}, "extra": {"deep": [None, 1]}}
    graded = await run(agent_on(arena), **row, _ng_task_index=4)
    assert graded.reward == 1.0
    assert (graded.extra, graded._ng_task_index) == ({"deep": [None, 1]}, 4)
    assert graded.responses_create_params.metadata == {"a": "b"}
    # The row's own words, not the defaults of ours.
    assert graded.responses_create_params.model_fields_set == {"input", "metadata"}


async def test_each_rollout_has_a_session_of_its_own_and_leaves_none_behind(arena):
    agent = agent_on(arena, *[call("score", points=1), "Done."] * 2)
    async with serving(agent):
        assert [(await run(agent)).reward for _ in range(2)] == [1.0, 1.0]
        assert len(arena.sessions) == 0


async def test_the_cookies_of_the_two_servers_are_kept_apart(arena):
    policy = make_server(Policy, name="policy_model", cookies_seen=[], sessions_seen=[])
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    assert (await run(agent)).reward == 1.0
    assert arena.cookies_seen == [set(), {"Arena___arena"}, {"Arena___arena"}]
    assert policy.cookies_seen == [set(), {"Policy___policy_model"}]
    assert len(set(policy.sessions_seen)) == 1


@pytest.mark.parametrize("row", [{"_ng_rollout_id": "r-1"}, {"_ng_task_index": 7, "_ng_rollout_index": 2}])
async def test_every_call_of_a_rollout_carries_its_id(arena, row):
    await run(agent_on(arena), **row)
    assert arena.rollouts_seen == [row.get("_ng_rollout_id", "7-2")] * 3


async def test_skipped_verification_is_said_and_closes_the_session(arena):
    agent = agent_on(arena, skip_verification=True, skip_verification_reward=0.5)
    async with serving(agent):
        graded = await run(agent, extra=1)
        assert (graded.reward, graded.verification_skipped, graded.extra) == (0.5, True, 1)
        assert graded.response.output_text == "Done."
        assert len(arena.sessions) == 0
    assert len(arena.rollouts_seen) == 2


FAILURES = {
    "tool": ([call("explode"), "Done."], {}, "arena: /explode raised ZeroDivisionError: of nothing"),
    "seed": ([], {"fails_to_begin": True}, "arena: /seed_session raised RuntimeError: no board left"),
    "verify": ([], {"fails_to_grade": True}, "arena: /verify raised RuntimeError: no ruler"),
    "row": ([], {"fails_to_grade": "perhaps"}, "arena: /verify answered 422: .*fails_to_grade"),
}


@pytest.mark.parametrize("stage", FAILURES)
async def test_a_failing_environment_fails_the_rollout_with_its_cause_and_closes_the_session(arena, stage):
    replies, row, message = FAILURES[stage]
    agent = agent_on(arena, *replies)
    async with serving(agent):
        with pytest.raises(InvalidTask if stage == "row" else EnvironmentFailed, match=message) as failed:
            await run(agent, **row)
        assert failed.value.server == "arena"
        assert len(arena.sessions) == 0


async def test_no_call_of_the_turn_is_still_at_work_when_the_session_is_closed(arena):
    agent = agent_on(arena, reply(call("explode"), call("linger")), "Done.")
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="explode"):
            await run(agent)
        assert (arena.lingered, len(arena.sessions)) == (1, 0)


async def test_after_a_failed_call_none_that_shares_its_state_is_made(arena):
    agent = agent_on(arena, reply(call("explode"), call("score", points=1)), "Done.")
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="explode"):
            await run(agent)
        assert len(arena.rollouts_seen) == 1


async def test_a_failing_tool_may_be_told_to_the_model_instead(arena):
    agent = agent_on(arena, call("explode"), call("score", points=2), "Done.", tool_faults="tell_model")
    graded = await run(agent)
    told = [item.output for item in graded.response.output if item.type == "function_call_output"]
    assert told[0].startswith("Error: arena: /explode raised ZeroDivisionError: of nothing")
    assert (told[1], graded.reward) == ("2", 2.0)


async def test_a_failing_model_fails_the_rollout_as_the_models_and_closes_the_session(arena):
    policy = make_server(Policy, name="policy_model")
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="the endpoint is gone") as failed:
            await run(agent, responses_create_params={"input": [], "user": "nobody"})
        assert failed.value.server == "policy_model"
        assert len(arena.sessions) == 0


class Unread(Policy):
    """Passes on what its endpoint answers, which is no response."""

    passes_on = True

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def pass_on(self, params: Any, items: Any) -> bytes:
        return b'{"id": "r", "output": [{"type": "message", "role": "assistant", "content": "no list of parts"}]}'


@pytest.mark.parametrize("skip_verification", [False, True])
async def test_an_answer_that_is_no_response_is_the_models_failure_whoever_notices(arena, skip_verification):
    policy = make_server(Unread, name="policy_model")
    agent = make_server(
        SimpleAgent, servers=[arena, policy], resources_server=ARENA, skip_verification=skip_verification
    )
    async with serving(agent):
        with pytest.raises(ModelFailed, match="the answer is not a response") as failed:
            await run(agent, responses_create_params={"input": "Play."})
        assert failed.value.server == "policy_model"
        assert len(arena.sessions) == 0


async def test_a_model_server_that_is_not_there_is_the_models_failure(arena):
    agent = make_server(SimpleAgent, servers=[arena], resources_server=ARENA)
    with pytest.raises(ModelFailed, match="policy_model"):
        await run(agent)


async def test_a_resources_server_that_is_not_there_is_the_environments_failure(arena):
    with pytest.raises(EnvironmentFailed, match="'elsewhere'"):
        await run(agent_on(arena, resources_server={**ARENA, "name": "elsewhere"}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"not": "a response"}, "policy_model: the answer is not a response"),
        ({"output": [{"type": "function_call", "name": "score"}]}, "policy_model: the answer is not a response"),
    ],
)
async def test_an_answer_that_is_no_response_is_the_models_failure(arena, answer, message):
    class Babbling(Policy):
        def setup_webserver(self) -> FastAPI:
            app = FastAPI()
            app.post("/v1/responses")(lambda: answer)
            return app

    policy = make_server(Babbling, name="policy_model")
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    with pytest.raises(ModelFailed, match=message):
        await run(agent)


async def test_the_conversation_alone_answers_with_the_whole_trajectory_and_the_sessions_cookie(arena):
    agent = agent_on(arena)
    async with serving(agent) as client, serving(arena) as outside:
        seeded = await outside.post("/seed_session", json={})
        cookies = {**seeded.cookies, "other": "1"}
        header = "; ".join(f"{name}={value}" for name, value in cookies.items())
        told = await client.post("/v1/responses", json={"input": "Play."}, headers={"cookie": header})
        assert [item["type"] for item in told.json()["output"]] == ["function_call", "function_call_output", "message"]
        assert told.cookies["Arena___arena"].strip('"') == seeded.cookies["Arena___arena"]
        assert "SimpleAgent___agent" in told.cookies
        row = {"responses_create_params": {"input": []}, "response": told.json()}
        assert (await outside.post("/verify", json=row)).json()["reward"] == 1.0


class Polite(SimpleAgent):
    """A subclass with its own way to answer."""

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        answered = await super().responses(request, response, body.model_copy(update={"instructions": "Be polite."}))
        return answered.model_copy(update={"model": "polite"})


async def test_run_honours_a_subclass_with_its_own_way_to_answer(arena):
    agent = agent_on(arena, call("score", points=3), "Thank you.", cls=Polite, model_server=POLICY)
    graded = await run(agent)
    assert (graded.reward, graded.response.model, graded.response.output_text) == (3.0, "polite", "Thank you.")
    assert agent.server_client._connections.model.requests[0]["instructions"] == "Be polite."


class MovedSession(Polite):
    """Answers for the resources server with a session of its own, as a subclass that talks to it by itself may."""

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        fresh = await self.server_client.post("arena", "/score", json={"points": 5})
        response.set_cookie("Arena___arena", fresh.cookies["Arena___arena"].value)
        return reply("Moved.")


async def test_the_cookies_that_a_subclass_sets_reach_verify(arena):
    agent = agent_on(arena, cls=MovedSession, model_server=POLICY)
    assert (await run(agent)).reward == 5.0


class OfBodyAlone(SimpleAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> dict[str, Any]:
        return reply(f"To {len(body.input)} items").model_dump()


class OfRequestAndBody(SimpleAgent):
    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> Response:
        answer = Response(reply(f"To {len(body.input)} items").model_dump_json())
        answer.set_cookie("seen", ",".join(request.cookies))
        return answer


@pytest.mark.parametrize("kind", [OfBodyAlone, OfRequestAndBody])
async def test_a_subclass_asks_for_as_much_as_it_needs_and_answers_in_any_form(arena, kind):
    graded = await run(agent_on(arena, cls=kind, model_server=POLICY))
    assert graded.response.output_text == "To 0 items"


class SecondThoughts(SimpleAgent):
    """Changes the row before the rollout, and the reward after it."""

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        params = body.responses_create_params.model_copy(update={"instructions": "Think twice."})
        graded = await super().run(request, body.model_copy(update={"responses_create_params": params}))
        assert isinstance(graded, SimpleAgentVerifyResponse)
        graded.reward /= 2
        return graded


async def test_a_subclass_changes_the_row_and_what_was_answered(arena):
    agent = agent_on(arena, call("score", points=3), "Done.", cls=SecondThoughts, model_server=POLICY)
    graded = await run(agent)
    assert (graded.reward, graded.response.output_text) == (1.5, "Done.")
    assert agent.server_client._connections.model.requests[0]["instructions"] == "Think twice."


POLICY = {"type": "responses_api_models", "name": "policy_model"}


class WithoutList(Arena):
    """As a server that is not built on the base class: it has no list of tools."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/tools"]
        return app


class WithAnotherAnswer(WithoutList):
    """As a server that answers whatever it is asked for."""

    is_page: bool = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/{path}")
        async def anything(path: str) -> Response:
            return Response(f"<h1>Here is no {path}</h1>" if self.is_page else '{"tools": []}')

        return app


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(WithoutList, {}), (WithAnotherAnswer, {}), (WithAnotherAnswer, {"is_page": False})],
)
async def test_a_server_without_a_list_of_tools_has_none(kind, fields):
    arena = make_server(kind, name="arena", cookies_seen=[], rollouts_seen=[], **fields)
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] == []


class WithListOfItsOwn(WithoutList):
    """As a server that answers `GET /tools` in its own way, without a word on their order."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/tools")
        async def tools() -> list[dict[str, Any]]:
            return [each.definition for each in self.tools()]

        return app


async def test_a_list_of_tools_need_not_tell_which_are_independent():
    arena = make_server(WithListOfItsOwn, name="arena", cookies_seen=[], rollouts_seen=[])
    agent = agent_on(arena, "Done.")
    assert (await run(agent)).reward == 0.0
    assert agent.server_client._connections.model.requests[0]["tools"] != []


async def test_metrics_are_the_resources_servers(arena):
    rows = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}
    async with serving(agent_on(arena)) as client:
        assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"]["mean/reward"] == 0.5
    async with serving(agent_on(arena, skip_verification=True)) as client:
        with pytest.warns(RuntimeWarning, match="verification was skipped"):
            assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"] == {}


@pytest.mark.parametrize(
    "settings", [{"max_steps": 0}, {"tool_faults": "ignore"}, {"resources_server": {"name": "x"}}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    with pytest.raises(ValueError, match=next(iter(settings))):
        SimpleAgentConfig.model_validate({"resources_server": ARENA, **given, **settings})
