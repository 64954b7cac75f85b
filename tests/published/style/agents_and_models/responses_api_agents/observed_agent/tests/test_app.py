from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.rollout_observability import AgentInvocation, AgentObservationBundle
from nemo_gym.server_utils import ServerClient
from responses_api_agents.observed_agent.app import ObservedAgent, ObservedAgentConfig

CALL = {"arguments": "{}", "call_id": "c1", "name": "look", "type": "function_call", "id": "fc", "status": "completed"}
MESSAGE = {
    "id": "msg",
    "content": [{"annotations": [], "text": "Hi", "type": "output_text", "logprobs": None}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}


def response_of(number: int, *output: dict) -> dict:
    return {
        "id": f"resp_{number}",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def test_answer_contains_the_observations() -> None:
    config = ObservedAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="observed",
        resources_server=ResourcesServerRef(type="resources_servers", name="env"),
        model_server=ModelServerRef(type="responses_api_models", name="model"),
    )
    server = ObservedAgent(config=config, server_client=MagicMock(spec=ServerClient))
    row = {"responses_create_params": {"input": "hi"}}
    answers = []
    for content in (
        {},
        response_of(1, CALL),
        {"seen": 1},
        response_of(2, MESSAGE),
        row | {"response": response_of(2, MESSAGE), "reward": 1.0},
    ):
        mock = AsyncMock()
        mock.ok = True
        mock.cookies = {}
        mock.read = AsyncMock(return_value=orjson.dumps(content))
        answers.append(mock)
    server.server_client.post = AsyncMock(side_effect=answers)
    observations = TestClient(server.setup_webserver()).post("/run", json=row).json()["ng_agent_observations"]
    bundle = AgentObservationBundle.model_validate(observations)
    assert bundle.source == "observed"
    assert [record.kind for record in bundle.records] == ["agent_invocation", "tool_call", "context_compaction"]
    called = [ref.response_id for episode in bundle.records[0].episodes for ref in episode.model_calls]
    assert called == ["resp_1", "resp_2"]
    assert bundle.records[1].output == '{"seen":1}'


def test_observations_are_strict() -> None:
    invocation = AgentInvocation(invocation_id="main")
    with pytest.raises(ValidationError):
        invocation.duration_ms = -1
    with pytest.raises(ValidationError):
        AgentInvocation(invocation_id="main", agent="me")
