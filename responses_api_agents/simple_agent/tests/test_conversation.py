"""Conversations of the plain agent: turns and calls, only of tools that the request lists."""

import asyncio

import orjson
import pytest
from fastapi import FastAPI, Request

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
    SessionState,
    SimpleResourcesServer,
    ToolError,
    tool,
)
from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import FakeModel, call, make_server, reply, run
from responses_api_agents.simple_agent.app import SimpleAgent

ARENA = {"type": "resources_servers", "name": "arena"}


class Score(SessionState):
    points: int = 0
    seeded: int = 0


class Arena(SimpleResourcesServer):
    """An environment that records the calls of its routes."""

    reached: list[str] = []  # noqa: RUF012
    waiting: int = 0
    most_at_once: int = 0

    async def seed_session(self, body: BaseSeedSessionRequest, score: Score) -> None:
        self.reached.append("seed_session")
        score.seeded += 1

    @tool
    async def score(self, points: int, score: Score) -> str:
        """Score points."""
        score.points += points
        return f"{score.points} points"

    @tool
    async def double(self, pause_s: float, score: Score) -> str:
        """Double the points, after a while."""
        await asyncio.sleep(pause_s)
        score.points *= 2
        return f"{score.points} points"

    @tool
    async def meet(self, name: str) -> str:
        """Wait until two are here."""
        self.waiting += 1
        self.most_at_once = max(self.most_at_once, self.waiting)
        for _ in range(100):
            if self.most_at_once == 2:
                break
            await asyncio.sleep(0.01)
        self.waiting -= 1
        return name

    @tool
    async def refuse(self) -> str:
        """Say no."""
        raise ToolError("no")

    async def secret(self, request: Request) -> str:
        self.reached.append("secret")
        return "secret"

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/secret")(self.secret)
        app.post("/admin/secret")(self.secret)
        return app

    async def verify(self, body: BaseVerifyRequest, score: Score) -> float:
        self.reached.append("verify")
        return float(score.points)


@pytest.fixture
def arena():
    return make_server(Arena, name="arena", reached=[])


def agent_on(arena: Arena, *replies: object, **settings: object) -> SimpleAgent:
    return make_server(SimpleAgent, model=FakeModel(replies), servers=[arena], resources_server=ARENA, **settings)


def asked(agent: SimpleAgent) -> list[JsonObject]:
    """Return the model's requests in order."""
    return agent.server_client._connections.model.requests


def changed(response: NeMoGymResponse, **fields: object) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate({**response.model_dump(mode="json"), **fields})


def outputs(graded: BaseVerifyResponse) -> list[str]:
    return [item.output for item in graded.response.output if item.type == "function_call_output"]


async def test_model_and_tools_alternate_until_an_answer(arena):
    agent = agent_on(arena, call("score", points=2), call("score", points=3), "I have 5 points.", "Never said.")
    graded = await run(agent)
    assert graded.reward == 5.0
    types = [item.type for item in graded.response.output]
    assert types == [*("function_call", "function_call_output") * 2, "message"]
    assert outputs(graded) == ["2 points", "5 points"]
    assert len(asked(agent)) == 3


async def test_text_with_calls_continues_the_conversation(arena):
    graded = await run(agent_on(arena, reply("Let me score.", call("score", points=1)), "Done."))
    assert (graded.reward, graded.response.output_text) == (1.0, "Let me score.Done.")


async def test_calls_run_concurrently_and_outputs_keep_order(arena):
    calls = [call("meet", name=name).model_copy(update={"call_id": name}) for name in ("first", "second")]
    graded = await run(agent_on(arena, reply(*calls), "Done."))
    assert arena.most_at_once == 2
    answers = [item for item in graded.response.output if item.type == "function_call_output"]
    assert [(item.call_id, item.output) for item in answers] == [("first", "first"), ("second", "second")]


async def test_calls_that_share_state_keep_their_order(arena):
    calls = [call("score", points=3), call("double", pause_s=0.05), call("score", points=1), call("double", pause_s=0)]
    graded = await run(agent_on(arena, reply(*calls), "Done."))
    assert outputs(graded) == ["3 points", "6 points", "7 points", "14 points"]


@pytest.mark.parametrize("steps", [1, 3])
async def test_last_calls_before_max_steps_are_answered(arena, steps):
    agent = agent_on(arena, call("score", points=1), max_steps=steps)
    graded = await run(agent)
    assert (len(asked(agent)), graded.reward, len(outputs(graded))) == (steps, float(steps), steps)


async def test_incomplete_response_ends_conversation_without_calls(arena):
    cut = changed(reply(call("score", points=1)), incomplete_details={"reason": "max_output_tokens"})
    agent = agent_on(arena, cut, "Never said.")
    graded = await run(agent)
    assert (len(asked(agent)), graded.reward, outputs(graded)) == (1, 0.0, [])
    assert graded.response.incomplete_details.reason == "max_output_tokens"


async def test_usage_of_all_turns_is_summed(arena):
    def used(response, tokens_in, tokens_out):
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
        details = {"input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 2}}
        return changed(response, usage={**usage, **details})

    turns = [used(reply(call("score", points=1)), 10, 5), reply(call("score", points=1)), used(reply("Done."), 30, 7)]
    usage = (await run(agent_on(arena, *turns))).response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (40, 12, 52)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (2, 4)


async def test_model_output_is_resent_without_empty_fields(arena):
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "…",
        "of_the_endpoint": {"deep": [1, 2]},
    }
    said = [
        reasoning,
        {
            **call("score", points=1).model_dump(mode="json"),
            "arguments": '{ "points" : 1 }',
            "prompt_token_ids": [1, 2],
            "generation_token_ids": [3],
            "generation_log_probs": [-0.5],
            "note": "kept",
        },
    ]
    agent = agent_on(arena, changed(reply(), output=said), "Done.")
    row_input = [{"role": "user", "content": "Play.", "unknown": "also kept"}]
    await run(agent, responses_create_params={"input": row_input, "temperature": 0.3})
    one, two = asked(agent)
    assert one["input"] == row_input
    answer = {"type": "function_call_output", "call_id": "call_score", "output": "1 points"}
    assert two["input"][:1] == row_input
    for item, sent in zip([*said, answer], two["input"][1:], strict=True):
        assert sent == {name: value for name, value in item.items() if value is not None}
    assert (one["temperature"], two["temperature"]) == (0.3, 0.3)


async def test_text_input_becomes_a_user_message(arena):
    agent = agent_on(arena, call("score", points=1), "Done.")
    await run(agent, responses_create_params={"input": "Play."})
    assert asked(agent)[1]["input"][0] == {"role": "user", "content": "Play."}


async def test_row_without_tools_gets_the_servers_tools(arena):
    agent = agent_on(arena, "Done.")
    await run(agent)
    assert [each["name"] for each in asked(agent)[0]["tools"]] == ["score", "double", "meet", "refuse"]


async def test_row_with_tools_keeps_them(arena):
    own = {"type": "function", "name": "score", "parameters": {"type": "object"}, "x": 1}
    agent = agent_on(arena, call("refuse"), "Done.")
    graded = await run(agent, responses_create_params={"input": [], "tools": [own]})
    assert asked(agent)[0]["tools"] == [own]
    assert outputs(graded) == ["Unknown tool 'refuse'. The tools are: score."]


async def test_tool_error_is_returned_to_the_model(arena):
    assert outputs(await run(agent_on(arena, call("refuse"), "Done."))) == ["Error: no"]


FORBIDDEN = [
    "verify", "seed_session", "close_session", "aggregate_metrics", "tools", "reverify_mode", "secret", "admin/secret",
    "score/../secret", "../secret", "/secret", "secret?x=1", "secret#", "secret\n", "secret HTTP/1.1\r\nx: y",
    "%73ecret", "..", "", " ", "unheard_of", "SCORE",
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_unlisted_tool_name_reaches_no_route(arena, name):
    graded = await run(agent_on(arena, call(name), "Done."))
    assert outputs(graded) == [f"Unknown tool {name!r}. The tools are: score, double, meet, refuse."]
    assert arena.reached == ["seed_session", "verify"]
    assert graded.reward == 0.0


@pytest.mark.parametrize("name", [name for name in FORBIDDEN if name not in ("secret", "unheard_of", "SCORE")])
async def test_route_listed_as_tool_is_not_called(arena, name):
    tools = [{"type": "function", "name": name, "parameters": {}}]
    graded = await run(agent_on(arena, call(name), "Done."), responses_create_params={"input": [], "tools": tools})
    assert outputs(graded) == [f"Unknown tool {name!r}. The tools are: none."]
    assert arena.reached == ["seed_session", "verify"]


@pytest.mark.parametrize("name", ["unheard_of", "SCORE"])
async def test_listed_tool_missing_on_server_is_not_found(arena, name):
    tools = [{"type": "function", "name": name, "parameters": {}}]
    graded = await run(agent_on(arena, call(name), "Done."), responses_create_params={"input": [], "tools": tools})
    assert outputs(graded) == ['{"detail":"Not Found"}']


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"points": 1', "Invalid tool call arguments: "),
        ("points=1", "Invalid tool call arguments: "),
        ("[1]", "Invalid tool call arguments: expected a JSON object, found list"),
        ('"1"', "Invalid tool call arguments: expected a JSON object, found str"),
        ("null", "Invalid tool call arguments: expected a JSON object, found NoneType"),
        ('{"points": "many"}', "Invalid arguments for score: 'points': Input should be a valid integer"),
        ('{"points": 1, "score": {"points": 99}}', "Invalid arguments for score: 'score' is not an argument"),
        ('{"point": 1}', "Invalid arguments for score: 'points' is missing"),
        ("", "Invalid arguments for score: 'points' is missing"),
        ('{"points": "\\ud800"}', "Invalid tool call arguments: "),
    ],
)
async def test_wrong_arguments_are_returned_to_the_model(arena, arguments, problem):
    wrong = call("score").model_copy(update={"arguments": arguments})
    graded = await run(agent_on(arena, wrong, call("score", points=1), "Done."))
    first, second = outputs(graded)
    assert problem in first
    assert (second, graded.reward) == ("1 points", 1.0)


async def test_long_integer_reaches_the_tool_exactly(arena):
    long = call("score").model_copy(update={"arguments": f'{{"points": {2**80 + 1}}}'})
    assert outputs(await run(agent_on(arena, long, "Done."))) == [f"{2**80 + 1} points"]


async def test_invalid_json_arguments_get_a_json_error(arena):
    graded = await run(agent_on(arena, call("score").model_copy(update={"arguments": '"'}), "Done."))
    assert orjson.loads(outputs(graded)[0])["error"].startswith("Invalid tool call arguments: ")
