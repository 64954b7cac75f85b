"""Conversations of a policy with a user, scripted or played by a model."""

import pytest
from pydantic import ConfigDict

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    DataError,
    EnvironmentFailed,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
    tool,
)
from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import call, make_server, reply, run, serving
from responses_api_agents.user_simulation_agent.app import UserSimulationAgent, UserSimulationAgentConfig

ARENA = {"type": "resources_servers", "name": "arena"}
POLICY = {"type": "responses_api_models", "name": "policy_model"}
USER = {"type": "responses_api_models", "name": "user_model"}
USAGE = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}

PROFILE = {
    "persona": "a hurried cook",
    "goal": "three points",
    "facts": {"number": 3},
    "answers": [{"asked": ["how many"], "says": "Three."}],
}
ROW = {
    "responses_create_params": {"input": [{"role": "system", "content": "S"}, {"role": "user", "content": "Score!"}]},
    "user": PROFILE,
}


class Score(SessionState):
    points: int = 0


class Arena(SimpleResourcesServer):
    async def seed_session(self, body: BaseSeedSessionRequest, score: Score) -> None:
        score.points = 0

    @tool
    async def score(self, points: int, score: Score) -> int:
        """Score points."""
        score.points += points
        return score.points

    @tool
    async def explode(self, score: Score) -> str:
        """Be buggy."""
        raise ZeroDivisionError("of nothing")

    async def verify(self, body: BaseVerifyRequest, score: Score) -> float:
        return float(score.points)


class Surveyed(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    roles: dict[str, JsonObject]


class Model(SimpleResponsesAPIModel):
    """A model that gives its replies in order and repeats the last one. Exceptions are raised."""

    config: BaseResponsesAPIModelConfig
    replies: list[object] = []  # noqa: RUF012
    asked: list[JsonObject] = []  # noqa: RUF012

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        self.asked.append(body.model_dump(mode="json", exclude_unset=True))
        answer = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(answer, Exception):
            raise answer
        response = answer if isinstance(answer, NeMoGymResponse) else reply(answer)
        return NeMoGymResponse.model_validate({**response.model_dump(mode="json"), "usage": USAGE})

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


def model(name: str, *replies: object) -> Model:
    built = make_server(Model, name=name)
    built.replies, built.asked = list(replies), []
    return built


def agent_on(*servers: Arena | Model, **settings: object) -> UserSimulationAgent:
    given = {"name": "agent", "resources_server": ARENA, "model_server": POLICY, **settings}
    return make_server(UserSimulationAgent, servers=servers, **given)


@pytest.fixture
def arena():
    return make_server(Arena, name="arena")


def course_of(graded: BaseVerifyResponse) -> list[str]:
    """Return the course of a conversation as lines of text."""
    course = []
    for item in graded.response.model_dump(mode="json")["output"]:
        if item["type"] == "function_call":
            course.append(f"{item['name']}{item['arguments']}")
        elif item["type"] == "function_call_output":
            course.append(f"= {item['output']}")
        else:
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            course.append(f"{item['role']}: {text}")
    return course


def asked_of(server: Model) -> list[list[tuple[str, str]]]:
    return [
        [(item.get("role", item.get("type")), item.get("content", item.get("output"))) for item in request["input"]]
        for request in server.asked
    ]


async def test_conversation_ends_with_satisfied_user(arena):
    policy = model("policy_model", "How many?", call("score", points=1), call("score", points=2), "Done.")
    graded = await run(agent_on(arena, policy), **ROW)
    assert course_of(graded) == [
        "assistant: How many?",
        "user: Three.",
        'score{"points":1}',
        "= 1",
        'score{"points":2}',
        "= 3",
        "assistant: Done.",
    ]
    assert (graded.reward, graded.ended_by, graded.user_turns, graded.user_usage) == (3.0, "goal_met", 1, None)
    assert graded.user == PROFILE
    assert graded.response.usage.total_tokens == 4 * 11
    # The user's message follows the answer to which it replies.
    assert asked_of(policy)[1][2:] == [("assistant", policy.asked[1]["input"][2]["content"]), ("user", "Three.")]


class Survey(Arena):
    """An environment that also grades the user: by the number of its messages."""

    async def verify(self, body: Surveyed) -> dict[str, object]:
        turns = body.roles["user"]["response"]["output"]
        return {**body.model_dump(), "reward": 1.0, "role_rewards": {"user": -0.5 * len(turns)}}


async def test_trained_user_is_a_role_with_the_reward_of_the_environment():
    policy, user = model("policy_model", "How many?", "Done."), model("user_model", "Three.", "Bye. ###STOP###")
    agent = agent_on(make_server(Survey, name="arena"), policy, user, user_model_server=USER, trains_user=True)
    graded = await run(agent, **ROW)
    part = graded.roles["user"]
    said = [item["content"][0]["text"] for item in part["response"]["output"]]
    assert said == ["Three.", "Bye. ###STOP###"]
    assert part["responses_create_params"] == user.asked[0]
    assert graded.role_rewards == {"user": -1.0}


async def test_untrained_or_scripted_users_are_no_roles(arena):
    policy, user = model("policy_model", "How many?", "Done."), model("user_model", "Bye. ###STOP###")
    graded = await run(agent_on(arena, policy, user, user_model_server=USER), **ROW)
    assert not hasattr(graded, "roles")
    graded = await run(agent_on(arena, policy, trains_user=True), **ROW)
    assert not hasattr(graded, "roles")


async def test_user_begins_without_user_message_in_row(arena):
    policy = model("policy_model", "Done.")
    row = {"responses_create_params": {"input": [{"role": "system", "content": "S"}]}, "user": {"script": ["Hi."]}}
    graded = await run(agent_on(arena, policy), **row)
    assert course_of(graded) == ["user: Hi.", "assistant: Done."]
    assert asked_of(policy) == [[("system", "S"), ("user", "Hi.")]]
    assert graded.user_turns == 1


@pytest.mark.parametrize("turns", [1, 3])
async def test_conversation_ends_after_max_user_turns(arena, turns):
    graded = await run(agent_on(arena, model("policy_model", "How many?"), max_user_turns=turns), **ROW)
    assert course_of(graded) == ["assistant: How many?", *["user: Three.", "assistant: How many?"] * turns]
    assert (graded.ended_by, graded.user_turns, graded.user_last_words) == ("max_user_turns", turns, "Three.")


@pytest.mark.parametrize(("steps", "items"), [(1, 1), (2, 4), (3, 6)])
async def test_conversation_ends_after_max_steps(arena, steps, items):
    policy = model("policy_model", "How many?", call("score", points=1))
    graded = await run(agent_on(arena, policy, max_steps=steps), **ROW)
    course = ["assistant: How many?", "user: Three.", *['score{"points":1}', "= 1", 'score{"points":1}', "= 2"]]
    assert course_of(graded) == course[:items]
    assert (graded.ended_by, len(policy.asked)) == ("max_steps", steps)


async def test_truncated_turn_ends_the_conversation(arena):
    cut = NeMoGymResponse.model_validate(
        {**reply("How m").model_dump(), "incomplete_details": {"reason": "max_output_tokens"}}
    )
    graded = await run(agent_on(arena, model("policy_model", cut)), **ROW)
    assert (course_of(graded), graded.ended_by) == (["assistant: How m"], "cut_off")


async def test_user_model_sees_swapped_roles_and_stops(arena):
    policy = model("policy_model", reply("Let me see.", call("score", points=3)), "<think>3?</think>Done?", "Fine.")
    user = model("user_model", "<think>not yet</think>Is that all?", "Thanks!\n###STOP### more")
    settings = {"user_model_server": USER, "user_responses_create_params": {"input": [], "temperature": 0.5}}
    graded = await run(agent_on(arena, policy, user, **settings), **ROW)
    assert course_of(graded)[-2:] == ["user: Is that all?", "assistant: Fine."]
    assert (graded.reward, graded.ended_by, graded.user_last_words) == (3.0, "goal_met", "Thanks!")
    assert (graded.response.usage.total_tokens, graded.user_usage["total_tokens"]) == (33, 22)
    assert graded.user_model == graded.response.model
    (system, *first), second = asked_of(user)
    assert all(part in system[1] for part in ("a hurried cook", "three points", "- number: 3", "###STOP###"))
    assert first == [
        ("user", "Hello! What can I do for you?"),
        ("assistant", "Score!"),
        ("user", "Let me see.\nDone?"),
    ]
    assert second == [system, *first, ("assistant", "Is that all?"), ("user", "Fine.")]
    assert {request["temperature"] for request in user.asked} == {0.5}


async def test_user_model_may_begin_and_sees_silence(arena):
    user = model("user_model", "Hi.", "END")
    agent = agent_on(arena, model("policy_model", ""), user, user_model_server=USER, stop_marker="END")
    graded = await run(agent, responses_create_params={"input": []}, user={})
    assert course_of(graded) == ["user: Hi.", "assistant: "]
    assert asked_of(user)[0][1:] == [("user", "Hello! What can I do for you?")]
    assert asked_of(user)[1][2:] == [("assistant", "Hi."), ("user", "(The assistant says nothing.)")]


async def test_stop_marker_of_policy_is_ignored(arena):
    user = model("user_model", "Go on.")
    agent = agent_on(arena, model("policy_model", "###STOP###"), user, user_model_server=USER, max_user_turns=2)
    assert (await run(agent, **ROW)).ended_by == "max_user_turns"


CUT = {**reply("I wa").model_dump(), "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (ModelFailed("the endpoint is gone", server="user_model"), "the endpoint is gone"),
        (RuntimeError("out of paper"), "out of paper"),
        ("", "the model's answer is empty"),
        ("<think>what now", "the model's answer is empty"),
        (reply(), "the model's answer is empty"),
        (NeMoGymResponse.model_validate(CUT), r"cut off \(max_output_tokens\)"),
    ],
)
async def test_failing_user_model_fails_rollout_with_cause(arena, answer, cause):
    agent = agent_on(arena, model("policy_model", "Hm?"), model("user_model", answer), user_model_server=USER)
    async with serving(agent):
        with pytest.raises(ModelFailed, match=f"the simulated user 'user_model': .*{cause}") as failed:
            await run(agent, **ROW)
        assert failed.value.server == "user_model"
        assert len(arena.sessions) == 0


async def test_missing_user_model_is_named(arena):
    agent = agent_on(arena, model("policy_model", "Hm?"), user_model_server=USER)
    with pytest.raises(ModelFailed, match="user_model") as failed:
        await run(agent, **ROW)
    assert failed.value.server == "user_model"


async def test_user_without_opening_message_fails_rollout(arena):
    agent = agent_on(arena, model("policy_model", "x"), model("user_model", "###STOP###"), user_model_server=USER)
    with pytest.raises(Exception, match="the first message of the simulated user is empty"):
        await run(agent, responses_create_params={"input": []}, user={})


@pytest.mark.parametrize("row", [{}, {"user": {"goals": "x"}}, {"user": {"answers": [{"asked": []}]}}])
async def test_row_without_valid_user_is_rejected(arena, row):
    with pytest.raises(DataError, match=r"the row.*'user"):
        await run(agent_on(arena, model("policy_model", "x")), **row)


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"fact": {"size": "L"}}, r"'user\.fact' .*: unknown setting\. Did you mean 'facts'\?"),
        (
            {"answers": [{"asked": ["x"], "say": "y"}]},
            r"answers\.0\.say' .*: unknown setting\. Did you mean 'says'\?",
        ),
        ({"colour": "red"}, r"'user\.colour' .*: unknown setting$"),
    ],
)
async def test_misspelt_field_of_user_gets_a_suggestion(arena, user, problem):
    with pytest.raises(DataError, match=problem):
        await run(agent_on(arena, model("policy_model", "x")), **{**ROW, "user": user})


async def test_failing_tool_or_policy_is_attributed(arena):
    with pytest.raises(EnvironmentFailed, match="of nothing"):
        await run(agent_on(arena, model("policy_model", call("explode"))), **ROW)
    with pytest.raises(ModelFailed, match="gone"):
        await run(agent_on(arena, model("policy_model", ModelFailed("gone", server="policy_model"))), **ROW)


class Own(Arena):
    """A verifier whose reply has no extra fields."""

    async def verify(self, body: BaseVerifyRequest, score: Score) -> BaseVerifyResponse:
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params, response=body.response, reward=0.5
        )


async def test_added_fields_survive_a_minimal_verifier():
    graded = await run(agent_on(make_server(Own, name="arena"), model("policy_model", "Done.")), **ROW)
    assert (graded.reward, graded.ended_by, graded.user_turns) == (0.5, "goal_met", 0)


async def test_skipped_verification_keeps_the_conversation(arena):
    agent = agent_on(arena, model("policy_model", "Done."), skip_verification=True)
    async with serving(agent):
        graded = await run(agent, **ROW)
        assert (graded.verification_skipped, graded.ended_by, len(arena.sessions)) == (True, "goal_met", 0)


async def test_responses_route_works_without_user(arena):
    agent = agent_on(arena, model("policy_model", call("score", points=1), "How many?"))
    async with serving(agent) as client:
        answered = await client.post("/v1/responses", json={"input": "Score!"})
    assert [item["type"] for item in answered.json()["output"]] == ["function_call", "function_call_output", "message"]


async def test_custom_prompt_is_filled_in_or_rejected(arena, tmp_path):
    path = tmp_path / "user.md"
    path.write_text("{persona} wants {goal}; {{braces}}; says {stop_marker}")
    user = model("user_model", "###STOP###")
    settings = {"user_model_server": USER, "user_prompt": str(path)}
    await run(agent_on(arena, model("policy_model", "Hm?"), user, **settings), **ROW)
    assert asked_of(user)[0][0][1] == "a hurried cook wants three points; {braces}; says ###STOP###"
    path.write_text("{mood}")
    with pytest.raises(DataError, match="'mood'"):
        await run(agent_on(arena, model("policy_model", "Hm?"), **settings), **ROW)


def test_missing_prompt_is_reported_with_its_key(tmp_path):
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    with pytest.raises(ValueError, match=r"user_prompt\n.*there is no file 'no\.md' in "):
        UserSimulationAgentConfig.model_validate(
            {"resources_server": ARENA, **given, "user_prompt": "no.md"},
            context={"folder": tmp_path, "checks_files": True},
        )


@pytest.mark.parametrize(
    "settings", [{"max_user_turns": 0}, {"max_steps": None}, {"stop_marker": ""}, {"stop_marker": "\u200b"}]
)
def test_invalid_settings_are_rejected(settings):
    given = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "a", "model_server": POLICY}
    with pytest.raises(ValueError, match=next(iter(settings))):
        UserSimulationAgentConfig.model_validate(
            {"resources_server": ARENA, **given, **settings}, context={"folder": None}
        )
