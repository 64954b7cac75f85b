from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.rollout_observability import AgentInvocation, AgentObservationBundle, join_model_call_observations
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
    answers = []
    for content in (response_of(1, CALL), {"seen": 1}, response_of(2, MESSAGE)):
        mock = AsyncMock()
        mock.ok = True
        mock.cookies = {}
        mock.read = AsyncMock(return_value=orjson.dumps(content))
        answers.append(mock)
    server.server_client.post = AsyncMock(side_effect=answers)
    client = TestClient(server.setup_webserver())
    assert client.post("/ng-rollout/3-1/v1/responses", json={"input": "hi"}).status_code == 200
    paths = [call.kwargs["url_path"] for call in server.server_client.post.await_args_list]
    assert paths == ["/ng-rollout/3-1/v1/responses", "/look", "/ng-rollout/3-1/v1/responses"]
    bundle = server._observed["3-1"]
    assert bundle.source == "observed"
    assert [record.kind for record in bundle.records] == [
        "agent_invocation",
        "tool_call",
        "context_compaction",
        "sandbox",
    ]
    assert [ref.response_id for ref in bundle.records[0].model_calls] == ["resp_1", "resp_2"]
    outputs = [item.output for item in bundle.records[0].conversation if item.type == "function_call_output"]
    assert outputs == ['{"seen":1}']
    joined = join_model_call_observations(
        bundle,
        [
            ModelCallRecord(call_index=0, model_call_id="a", model_ref=config.model_server, response_id="resp_1"),
            ModelCallRecord(call_index=1, model_call_id="b", model_ref=config.model_server, response_id="resp_2"),
        ],
    )
    assert [ref.model_call_id for ref in joined.records[0].model_calls] == ["a", "b"]
    assert [gap.code for gap in joined.gaps] == ["no_subagents", "model_call_reference_unmatched"]


def test_observations_are_strict() -> None:
    invocation = AgentInvocation(invocation_id="main")
    with pytest.raises(ValidationError):
        invocation.duration_ms = -1
    with pytest.raises(ValidationError):
        AgentInvocation(invocation_id="main", agent="me")
    with pytest.raises(ValidationError):
        AgentObservationBundle(source="me", records=[invocation, invocation])
