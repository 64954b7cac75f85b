"""Answers of another agent that continues after a critique."""

from typing import Any

import pytest
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from nemo_gym import (
    AgentFailed,
    BaseResponsesAPIModelConfig,
    BaseVerifyRequest,
    ConversingAgent,
    EnvironmentFailed,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
    tool,
)
from nemo_gym.testing import call, make_server, reply, run, serving
from responses_api_agents.reflection_agent.app import ReflectionAgent

RESOURCES = {"type": "resources_servers", "name": "arena"}
POLICY = {"type": "responses_api_models", "name": "policy"}
CRITIC = {"type": "responses_api_models", "name": "critic"}
INNER = {"type": "responses_api_agents", "name": "inner"}
USAGE = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
ROW = {"responses_create_params": {"input": "Score five."}}


class Score(SessionState):
    points: int = 0


class Arena(SimpleResourcesServer):
    sessions_seen: set[str] = Field(default_factory=set)

    @tool
    async def score(self, request: Request, points: int, score: Score) -> int:
        """Score points."""
        self.sessions_seen.add(request.session["session_id"])
        score.points += points
        return score.points

    @tool
    async def explode(self) -> str:
        """Be buggy."""
        raise ZeroDivisionError("of nothing")

    async def verify(self, body: BaseVerifyRequest, score: Score) -> float:
        return float(score.points)


class Model(SimpleResponsesAPIModel):
    """A model that gives its replies in order. Exceptions are raised."""

    config: BaseResponsesAPIModelConfig
    replies: list[Any] = Field(default_factory=list)
    asked: list[Any] = Field(default_factory=list)
    prefixes: list[str | None] = Field(default_factory=list)

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> Any:
        self.prefixes.append(request.path_params.get("rollout_id"))
        self.asked.append(body.model_dump(mode="json", exclude_unset=True))
        answer = self.replies.pop(0)
        if isinstance(answer, Exception):
            raise answer
        response = answer if isinstance(answer, NeMoGymResponse) else reply(answer)
        return NeMoGymResponse.model_validate({**response.model_dump(mode="json"), "usage": USAGE})

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


def model(name: str, *replies: Any) -> Model:
    built = make_server(Model, name=name)
    built.replies = list(replies)
    return built


def agent_on(arena: Arena, policy: Model, critic: Model, **settings: Any) -> ReflectionAgent:
    inner = make_server(
        Looping, name="inner", servers=[arena, policy], resources_server=RESOURCES, model_server=POLICY
    )
    given = {"agent_server": INNER, "resources_server": RESOURCES, "model_server": CRITIC, **settings}
    return make_server(ReflectionAgent, name="outer", servers=[arena, inner, critic], **given)


@pytest.fixture
def arena():
    return make_server(Arena, name="arena")


def course_of(items: list[Any]) -> list[str]:
    return [each.get("role") or each["type"] for each in items]


async def test_agent_continues_its_session_after_critique(arena):
    policy = model("policy", call("score", points=2), "Two.", call("score", points=3), "Five.")
    critic = model("critic", "<think>hm</think>Three are missing.")
    graded = await run(agent_on(arena, policy, critic), **ROW)
    output = graded.response.model_dump(mode="json")["output"]
    turn = ["function_call", "function_call_output", "assistant"]
    assert course_of(output) == [*turn, "user", *turn]
    assert (graded.reward, graded.critiques, len(arena.sessions_seen)) == (5.0, 1, 1)
    assert "Three are missing." in output[3]["content"]
    assert "hm" not in output[3]["content"].split("\n")[2]
    assert graded.response.last_text == "Five."
    assert course_of(policy.asked[2]["input"]) == ["user", *turn, "user"]
    assert graded.response.usage.total_tokens == 5 * 11


async def test_critic_sees_task_and_steps(arena):
    policy = model("policy", call("score", points=2), "<think>2</think>Two.", "Still two.")
    critic = model("critic", "Fine.")
    settings = {"critique_responses_create_params": {"input": [], "temperature": 0.5}}
    await run(agent_on(arena, policy, critic, **settings), **ROW)
    (asked,) = critic.asked
    question = asked["input"][0]["content"]
    assert "Score five." in question
    assert 'tool call: score({"points":2})\ntool output: 2\nassistant: Two.' in question
    assert (asked["temperature"], "tools" in asked) == (0.5, False)


async def test_each_round_sees_earlier_critiques(arena):
    policy = model("policy", "One.", "Two.", "Three.")
    critic = model("critic", "More.", "Even more.")
    graded = await run(agent_on(arena, policy, critic, rounds=2), **ROW)
    output = graded.response.model_dump(mode="json")["output"]
    assert course_of(output) == ["assistant", "user", "assistant", "user", "assistant"]
    assert graded.critiques == 2
    question = critic.asked[1]["input"][0]["content"]
    assert question.index("One.") < question.index("More.") < question.index("Two.")


async def test_answer_that_was_cut_off_ends_the_rounds(arena):
    cut = NeMoGymResponse.model_validate({**reply("On").model_dump(), "incomplete_details": {"reason": "x"}})
    graded = await run(agent_on(arena, model("policy", cut), model("critic")), **ROW)
    assert (graded.critiques, graded.response.last_text) == (0, "On")


@pytest.mark.parametrize(
    ("answers", "critiques", "failure"),
    [
        ([ModelFailed("gone", server="policy")], [], (ModelFailed, "policy", "gone")),
        (["One.", ModelFailed("gone", server="policy")], ["More."], (ModelFailed, "policy", "gone")),
        (["One."], [ModelFailed("mute", server="critic")], (ModelFailed, "critic", "mute")),
        (["One."], ["<think>so"], (ModelFailed, "critic", "the critique is empty")),
        ([call("explode")], [], (EnvironmentFailed, "arena", "of nothing")),
    ],
)
async def test_failure_keeps_its_stage_and_closes_session(arena, answers, critiques, failure):
    error, server, cause = failure
    agent = agent_on(arena, model("policy", *answers), model("critic", *critiques))
    async with serving(agent):
        with pytest.raises(error, match=cause) as raised:
            await run(agent, **ROW)
        assert (raised.value.server, len(arena.sessions)) == (server, 0)


async def test_agent_without_a_response_fails_itself(arena):
    class Mute(Looping):
        async def responses(self) -> dict[str, str]:
            return {"output": "none"}

    inner = make_server(Mute, name="inner", resources_server=RESOURCES, model_server=POLICY)
    given = {"agent_server": INNER, "resources_server": RESOURCES, "model_server": CRITIC}
    with pytest.raises(AgentFailed, match="inner: the answer of /v1/responses is not a response"):
        await run(make_server(ReflectionAgent, name="outer", servers=[arena, inner], **given), **ROW)


async def test_responses_route_uses_the_callers_session(arena):
    policy, critic = model("policy", call("score", points=2), "Two.", "Done."), model("critic", "Fine.")
    async with serving(agent_on(arena, policy, critic)) as client, serving(arena) as environment:
        seeded = await environment.post("/seed_session", json={})
        header = {"cookie": "; ".join(f"{name}={value}" for name, value in seeded.cookies.items())}
        answered = await client.post("/ng-rollout/3-1/v1/responses", json={"input": "Score."}, headers=header)
        assert answered.cookies["Arena___arena"].strip('"') == seeded.cookies["Arena___arena"]
        environment.cookies = answered.cookies
        row = {"responses_create_params": {"input": []}, "response": answered.json()}
        assert (await environment.post("/verify", json=row)).json()["reward"] == 2.0
    # The calls of the other agent are captured, the critic's are not.
    assert (set(policy.prefixes), set(critic.prefixes)) == ({"3-1"}, {None})


@pytest.mark.parametrize(("settings", "problem"), [({"rounds": 0}, "rounds"), ({"tool_faults": "x"}, "tool_faults")])
def test_invalid_settings_are_rejected(arena, settings, problem):
    with pytest.raises(Exception, match=problem):
        agent_on(arena, model("policy"), model("critic"), **settings)
