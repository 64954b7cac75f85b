"""Several attempts of another agent: the choice, the grading of the chosen one, and the end of the others."""

import itertools
from functools import partial
from typing import Any

import pytest
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    BaseVerifyRequest,
    ConversingAgent,
    EnvironmentFailed,
    InvalidTask,
    JudgeFailed,
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
from responses_api_agents.best_of_n_agent.app import BestOfNAgent

RESOURCES = {"type": "resources_servers", "name": "arena"}
USAGE = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}


class Score(SessionState):
    points: int = 0


class Arena(SimpleResourcesServer):
    """Rewards the points of a session, and logs its calls."""

    seen: list[str] = Field(default_factory=list)
    sessions_seen: set[str] = Field(default_factory=set)
    closed: list[str] = Field(default_factory=list)
    seeds: Any = Field(default_factory=partial(itertools.count, 1))
    seeds_that_fail: set[int] = Field(default_factory=set)
    fails_to_grade: bool = False

    def note(self, name: str, request: Request) -> None:
        self.seen.append(name)
        self.sessions_seen.add(request.session["session_id"])

    async def seed_session(self, request: Request, score: Score) -> None:
        self.note("seed", request)
        if next(self.seeds) in self.seeds_that_fail:
            raise RuntimeError("no board left")

    @tool
    async def score(self, points: int, score: Score) -> int:
        """Score points."""
        score.points += points
        return score.points

    async def verify(self, request: Request, body: BaseVerifyRequest, score: Score) -> float:
        self.note("verify", request)
        if self.fails_to_grade:
            raise RuntimeError("no ruler")
        return float(score.points)

    async def close_session(self, request: Request) -> None:
        self.note("close", request)
        self.closed.append(request.session["session_id"])


class Policy(SimpleResponsesAPIModel):
    """Gives each attempt one of these courses, in the order in which they begin."""

    config: BaseResponsesAPIModelConfig
    courses: list[Any] = Field(default_factory=list)
    begun: Any = Field(default_factory=itertools.count)
    paths: list[str] = Field(default_factory=list)

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> Any:
        self.paths.append(f"{request.path_params.get('rollout_id')} {current_rollout_id()}")
        if len(body.input_items) == 1:
            turn = next(self.begun)
            points = self.courses[turn][0]
            if isinstance(points, Exception):
                raise points
            given = call("score", points=points).model_copy(update={"call_id": f"call_{turn}"})
            return with_usage(reply(given))
        calls = [item.call_id for item in body.input_items if item.type == "function_call"]
        return with_usage(reply(self.courses[int(calls[0].removeprefix("call_"))][1]))

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


class Looping(ConversingAgent):
    """The other agent: model and tools alternate."""

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        params, path = body.model_dump(mode="json", exclude_unset=True), "/v1/responses"
        conversation = await self.begin(params, dict(request.cookies), self.url_path_for_request(path, request))
        await self.answer(conversation)
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def converse(self, *_: Any) -> None:
        raise NotImplementedError


def with_usage(response: NeMoGymResponse) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**response.model_dump(mode="json"), "usage": USAGE})


def policy_of(*courses: Any) -> Policy:
    policy = make_server(Policy, name="policy")
    policy.courses = list(courses)
    return policy


def arena_of(**trouble: Any) -> Arena:
    arena = make_server(Arena, name="arena")
    for name, value in trouble.items():
        setattr(arena, name, value)
    return arena


def agent_on(arena: Arena, *courses: Any, judge: FakeModel | None = None, **settings: Any) -> BestOfNAgent:
    policy = policy_of(*courses)
    policy_model = {"type": "responses_api_models", "name": "policy"}
    inner = make_server(
        Looping, name="inner", servers=[arena, policy], resources_server=RESOURCES, model_server=policy_model
    )
    return make_server(
        BestOfNAgent,
        name="outer",
        model=judge,
        servers=[arena, inner, policy],
        agent_server={"type": "responses_api_agents", "name": "inner"},
        resources_server=RESOURCES,
        **{"attempts": len(courses), **settings},
    )


ROW = {"responses_create_params": {"input": "Play."}, "_ng_rollout_id": "3-1"}
FAILURE = ModelFailed("the endpoint is gone", server="policy")


async def test_most_common_answer_is_graded_in_its_session():
    arena = arena_of()
    graded = await run(agent_on(arena, (1, "Four."), (2, "Thinking.\nAnswer: five"), (3, "**Five.**")), **ROW)
    assert (graded.reward, graded.chosen_attempt, graded.votes) == (2.0, 2, 2)
    assert graded.response.last_text == "Thinking.\nAnswer: five"
    assert [each["attempt"] for each in graded.attempts] == [1, 3]
    assert graded.attempts[0]["response"]["output"][-1]["content"][0]["text"] == "Four."
    assert graded.response.usage.total_tokens == 3 * 2 * 11


async def test_each_attempt_has_and_closes_its_session():
    arena = arena_of()
    agent = agent_on(arena, (1, "A"), (2, "B"), (3, "B"))
    async with serving(agent):
        await run(agent, **ROW)
        assert sorted(arena.seen) == ["close", "close", "seed", "seed", "seed", "verify"]
        assert (len(arena.sessions), len(arena.sessions_seen)) == (0, 3)


async def test_other_attempts_continue_after_a_failure():
    arena = arena_of()
    agent = agent_on(arena, (FAILURE, ""), (2, "B"), (3, "C"))
    async with serving(agent):
        graded = await run(agent, **ROW)
        assert len(arena.sessions) == 0
    failed = next(each for each in graded.attempts if "failure_class" in each)
    assert (failed["failure_class"], failed["failure_server"]) == ("model_failed", "policy")
    assert "the endpoint is gone" in failed["failure_message"]
    assert graded.reward in (2.0, 3.0)


async def test_session_that_cannot_be_seeded_is_a_failed_attempt():
    arena = arena_of(seeds_that_fail={2})
    graded = await run(agent_on(arena, (1, "A"), (1, "A"), attempts=2), **ROW)
    assert (graded.reward, graded.attempts[0]["failure_class"]) == (1.0, "environment_failed")


@pytest.mark.parametrize(("trouble", "error"), [({}, ModelFailed), ({"seeds_that_fail": {1}}, EnvironmentFailed)])
async def test_failure_of_all_attempts_keeps_its_stage(trouble, error):
    arena = arena_of(**trouble)
    agent = agent_on(arena, (FAILURE, ""), (FAILURE, ""))
    async with serving(agent):
        with pytest.raises(error) as raised:
            await run(agent, **ROW)
        assert len(arena.sessions) == 0
    assert raised.value.server == ("policy" if error is ModelFailed else "arena")


async def test_failed_verification_closes_the_chosen_session():
    arena = arena_of(fails_to_grade=True)
    agent = agent_on(arena, (1, "A"), (2, "B"), (3, "B"))
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="no ruler"):
            await run(agent, **ROW)
        assert sorted(arena.closed) == sorted(arena.sessions_seen)
        assert len(arena.closed) == 3


async def test_judge_sees_attempts_and_chooses():
    judge = FakeModel(["The first one is wrong.\n2"])
    graded = await run(
        agent_on(arena_of(), (1, "Four."), (2, "<think>2+3</think>Five."), judge=judge, choose="judge"), **ROW
    )
    assert (graded.reward, graded.chosen_attempt, graded.judge_text) == (2.0, 2, "The first one is wrong.\n2")
    (request,) = judge.requests
    question = request["input"][0]["content"]
    assert 'Attempt 1:\ntool call: score({"points":1})\ntool output: 1\nassistant: Four.' in question
    assert "assistant: Five." in question
    assert "The numbers are: 1, 2." in question


async def test_only_remaining_attempt_needs_no_judge():
    judge = FakeModel(["1"])
    graded = await run(agent_on(arena_of(), (FAILURE, ""), (2, "B"), judge=judge, choose="judge"), **ROW)
    assert (graded.reward, judge.requests) == (2.0, [])


async def test_undecided_judge_fails_rollout_and_closes_sessions():
    arena = arena_of()
    agent = agent_on(arena, (1, "A"), (2, "B"), judge=FakeModel(["Both are fine."]), choose="judge")
    async with serving(agent):
        with pytest.raises(JudgeFailed, match="did not decide on one of the labels 1 and 2"):
            await run(agent, **ROW)
        assert len(arena.sessions) == 0


async def test_attempts_without_text_do_not_vote():
    graded = await run(agent_on(arena_of(), (1, ""), (2, ""), (3, "C")), **ROW)
    assert (graded.reward, graded.votes) == (3.0, 1)


async def test_every_call_has_the_rollout_id():
    agent = agent_on(arena_of(), (1, "A"), (2, "A"))
    await run(agent, **ROW)
    policy = agent.server_client._servers["policy"]
    assert set(policy.paths) == {"None 3-1"}


async def test_responses_route_asks_for_a_row():
    async with serving(agent_on(arena_of(), (1, "A"), (1, "A"))) as client:
        with pytest.raises(InvalidTask, match="Call /run instead"):
            await client.post("/v1/responses", json={"input": "hi"})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"attempts": 1}, "attempts"), ({"max_steps": 5}, "max_steps cannot be set here. Set it in .* 'inner'")],
)
def test_invalid_settings_are_rejected(settings, problem):
    with pytest.raises(Exception, match=problem):
        agent_on(arena_of(), (1, "A"), **{"attempts": 2, **settings})
