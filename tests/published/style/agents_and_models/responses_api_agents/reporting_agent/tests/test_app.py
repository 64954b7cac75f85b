from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from app import ReportingAgent, ReportingAgentConfig
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient

ANSWER = {
    "id": "resp_1",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [
        {
            "id": "msg",
            "content": [{"annotations": [], "text": "Hi", "type": "output_text", "logprobs": None}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def make_server(**global_config: object) -> ReportingAgent:
    config = ReportingAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        resources_server=ResourcesServerRef(type="resources_servers", name="env"),
        model_server=ModelServerRef(type="responses_api_models", name="model"),
    )
    server = ReportingAgent(config=config, server_client=MagicMock(spec=ServerClient))
    model = {"responses_api_models": {"m": {"host": "127.0.0.1", "port": 7}}}
    server.server_client.global_config_dict = {"model": model, **global_config}
    server.server_client._build_server_base_url = lambda block: f"http://{block['host']}:{block['port']}"
    reply = AsyncMock()
    reply.ok = True
    reply.cookies = {}
    reply.read = AsyncMock(return_value=orjson.dumps(ANSWER))
    server.server_client.post = AsyncMock(return_value=reply)
    return server


@pytest.mark.parametrize("segment", ["", "/training-token-capture"])
def test_prefixed_call_is_observed(segment: str) -> None:
    server = make_server()
    path = f"/ng-rollout/2-0{segment}/v1/responses"
    assert TestClient(server.setup_webserver()).post(path, json={"input": "hi"}).status_code == 200
    report = server._reports["2-0"]
    assert report.base_url == "http://127.0.0.1:7/ng-rollout/2-0/v1"
    assert report.captures_tokens is bool(segment)
    assert report.paths == [path, path]
    assert report.observations.records[0].model_calls[0].response_id == "resp_1"


def test_plain_call_is_not_observed() -> None:
    server = make_server()
    assert TestClient(server.setup_webserver()).post("/v1/responses", json={"input": "hi"}).status_code == 200
    assert server._reports == {}


def test_stubs_of_requests_have_paths() -> None:
    server = make_server()
    assert server.url_path_for_request("/v1/responses", None) == "/v1/responses"
    stub = SimpleNamespace(path_params={"rollout_id": "2-0"})
    assert server.url_path_for_request("/v1/responses", stub) == "/ng-rollout/2-0/v1/responses"
