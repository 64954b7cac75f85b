"""Failures of the plain agent's rollouts, and the servers that they are attributed to."""

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from nemo_gym import (
    EnvironmentFailed,
    InvalidTask,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    tool,
)
from nemo_gym.testing import call, make_server, on_a_port, reply, run, serving
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_agents.simple_agent.tests.arena import ARENA, Arena, Policy, agent_on

FAILURES = {
    "tool": ([call("explode"), "Done."], {}, "arena: /explode raised ZeroDivisionError: of nothing"),
    "seed": ([], {"fails_to_begin": True}, "arena: /seed_session raised RuntimeError: no board left"),
    "verify": ([], {"fails_to_grade": True}, "arena: /verify raised RuntimeError: no ruler"),
    "row": ([], {"fails_to_grade": "perhaps"}, "the row's 'fails_to_grade' is invalid for verify of arena"),
}


@pytest.mark.parametrize("stage", FAILURES)
async def test_failing_environment_fails_rollout_and_closes_session(arena, stage):
    replies, row, message = FAILURES[stage]
    agent = agent_on(arena, *replies)
    async with serving(agent):
        with pytest.raises(InvalidTask if stage == "row" else EnvironmentFailed, match=message) as failed:
            await run(agent, **row)
        assert failed.value.server == "arena"
        assert len(arena.sessions) == 0


async def test_session_closes_after_all_calls_have_ended(arena):
    agent = agent_on(arena, reply(call("explode"), call("linger")), "Done.")
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="explode"):
            await run(agent)
        assert (arena.lingered, len(arena.sessions)) == (1, 0)


class FaultyRow(Arena):
    @tool
    async def look(self) -> str:
        """Look at a board that the row does not define."""
        raise InvalidTask("arena: board: missing", server="arena")


async def test_invalid_row_found_by_a_tool_fails():
    agent = agent_on(make_server(FaultyRow, name="arena"), call("look"), "Done.")
    async with serving(agent):
        with pytest.raises(InvalidTask, match="arena: board: missing"):
            await run(agent)


async def test_failed_call_skips_calls_that_share_state(arena):
    agent = agent_on(arena, reply(call("explode"), call("score", points=1)), "Done.")
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="explode"):
            await run(agent)
        assert len(arena.rollouts_seen) == 1


async def test_tool_failure_may_be_returned_to_the_model(arena):
    agent = agent_on(arena, call("explode"), call("score", points=2), "Done.", tool_faults="tell_model")
    graded = await run(agent)
    returned = [item.output for item in graded.response.output if item.type == "function_call_output"]
    assert returned[0].startswith("Error: arena: /explode raised ZeroDivisionError: of nothing")
    assert (returned[1], graded.reward) == ("2", 2.0)


async def test_failing_model_fails_rollout_and_closes_session(arena):
    policy = make_server(Policy, name="policy_model")
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    async with serving(agent):
        with pytest.raises(ModelFailed, match="the endpoint is gone") as failed:
            await run(agent, responses_create_params={"input": [], "user": "nobody"})
        assert failed.value.server == "policy_model"
        assert len(arena.sessions) == 0


class Refusing(Policy):
    """A model that refuses requests with the status that the user names."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise HTTPException(int(body.user), "tool_choice names no tool")


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, (400, "invalid_task")), (413, (413, "invalid_task")), (422, (422, "invalid_task")),
     (404, (502, "model_failed")), (500, (502, "model_failed"))],
)  # fmt: skip
async def test_request_that_the_model_refuses_is_an_invalid_task(arena, status, expected):
    policy = make_server(Refusing, name="policy_model")
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    row = {"responses_create_params": {"input": "Play.", "user": str(status)}}
    async with on_a_port(agent) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
        for path, body in (("/run", row), ("/v1/responses", row["responses_create_params"])):
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["failure_class"]) == expected, path
            assert (answer.json()["tier"], answer.json()["server"]) == ("model", "policy_model")
            assert "tool_choice names no tool" in answer.json()["detail"]


class Unread(Policy):
    """A model that forwards an invalid response unread."""

    passes_on = True

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def pass_on(self, params: object, items: object) -> bytes:
        return b'{"id": "r", "output": [{"type": "message", "role": "assistant", "content": [5]}]}'


@pytest.mark.parametrize("skip_verification", [False, True])
async def test_unread_invalid_response_is_a_model_failure(arena, skip_verification):
    policy = make_server(Unread, name="policy_model")
    agent = make_server(
        SimpleAgent, servers=[arena, policy], resources_server=ARENA, skip_verification=skip_verification
    )
    async with serving(agent):
        with pytest.raises(ModelFailed, match="the reply is not a valid response") as failed:
            await run(agent, responses_create_params={"input": "Play."})
        assert failed.value.server == "policy_model"
        assert len(arena.sessions) == 0


async def test_missing_model_server_is_a_model_failure(arena):
    agent = make_server(SimpleAgent, servers=[arena], resources_server=ARENA)
    with pytest.raises(ModelFailed, match="policy_model"):
        await run(agent)


async def test_missing_resources_server_is_an_environment_failure(arena):
    with pytest.raises(EnvironmentFailed, match="'elsewhere'"):
        await run(agent_on(arena, resources_server={**ARENA, "name": "elsewhere"}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"not": "a response"}, "policy_model: the reply is not a valid response"),
        (
            {"output": [{"type": "function_call", "arguments": "{}"}]},
            "policy_model: the reply is not a valid response",
        ),
        (
            {"output": [], "status": "failed", "error": {"code": "server_error"}},
            "policy_model: the response has the status 'failed', error: {'code': 'server_error'}",
        ),
    ],
)
async def test_invalid_response_is_a_model_failure(arena, answer, message):
    class Babbling(Policy):
        def setup_webserver(self) -> FastAPI:
            app = FastAPI()
            app.post("/v1/responses")(lambda: answer)
            return app

    policy = make_server(Babbling, name="policy_model")
    agent = make_server(SimpleAgent, servers=[arena, policy], resources_server=ARENA)
    with pytest.raises(ModelFailed, match=message):
        await run(agent)
