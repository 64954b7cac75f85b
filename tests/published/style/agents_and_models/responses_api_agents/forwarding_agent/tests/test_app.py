from unittest.mock import AsyncMock, MagicMock

import orjson
from app import ForwardingAgent, ForwardingAgentConfig
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient

ANSWER = {
    "id": "resp",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [{"id": "msg", "content": [], "role": "assistant", "status": "completed", "type": "message"}],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def test_the_body_is_forwarded_as_it_came() -> None:
    config = ForwardingAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        resources_server=ResourcesServerRef(type="resources_servers", name="env"),
        model_server=ModelServerRef(type="responses_api_models", name="model"),
    )
    server = ForwardingAgent(config=config, server_client=MagicMock(spec=ServerClient))
    answer = AsyncMock(ok=True)
    answer.read = AsyncMock(return_value=orjson.dumps(ANSWER))
    server.server_client.post = AsyncMock(return_value=answer)
    phrased = {**ANSWER["output"][0], "phase": "commentary"}
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "files"}
    body = {
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            phrased,
            called,
            {"type": "message", "role": "user", "content": "Well?"},
        ],
        "temperature": 0.5,
    }
    TestClient(server.setup_webserver()).post("/v1/responses", json=body).raise_for_status()
    server.server_client.post.assert_awaited_once_with(server_name="model", url_path="/v1/responses", json=body)
