from unittest.mock import MagicMock

import pytest
from app import NotedOverMcpResourcesServer, NotedOverMcpResourcesServerConfig
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import NEMO_GYM_MCP_METADATA_KEY
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.server_utils import ServerClient

ROW = {"responses_create_params": {"input": "Note milk."}, "expected_notes": ["milk"]}
MCP_HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


@pytest.fixture
def client():
    config = NotedOverMcpResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="notes")
    server = NotedOverMcpResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    # MCP also works without `with`, when the app has not been started.
    with TestClient(app) as client:
        yield client


def _rpc(client: TestClient, headers: dict, method: str, **params):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post("/mcp", json=body, headers={**MCP_HEADERS, **headers}).json()["result"]


def test_mcp_tool_uses_the_session_of_its_token(client: TestClient) -> None:
    metadata = client.post("/seed_session", json=ROW).json()[NEMO_GYM_MCP_METADATA_KEY]
    assert (metadata["server_name"], metadata["url_path"], metadata["transport"]) == ("notes", "/mcp", "http")
    assert list(metadata["headers"]) == ["X-NeMo-Gym-Session-Token"]

    tools = {tool["name"]: tool for tool in _rpc(client, metadata["headers"], "tools/list")["tools"]}
    assert sorted(tools) == ["add_note", "read_notes"]
    assert tools["add_note"]["description"] == "Write a note down."
    assert tools["add_note"]["inputSchema"]["required"] == ["text"]

    called = _rpc(client, metadata["headers"], "tools/call", name="add_note", arguments={"text": "milk"})
    assert called["content"][0]["text"] == '{"notes":["milk"]}'
    # The same session as over HTTP.
    assert client.post("/read_notes").json() == {"notes": ["milk"]}


def test_a_row_may_allow_fewer_tools(client: TestClient) -> None:
    metadata = client.post("/seed_session", json={**ROW, "read_only": True, "first_notes": ["a"]}).json()["mcp"]
    assert [tool["name"] for tool in _rpc(client, metadata["headers"], "tools/list")["tools"]] == ["read_notes"]
    assert _rpc(client, metadata["headers"], "tools/call", name="add_note", arguments={"text": "b"})["isError"]
    assert client.post("/read_notes").json() == {"notes": ["a"]}


def test_without_the_setting_nothing_is_exposed() -> None:
    config = NotedOverMcpResourcesServerConfig(
        host="0.0.0.0", port=8080, entrypoint="", name="notes", expose_tools_over_mcp=False
    )
    server = NotedOverMcpResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    client = TestClient(app)
    assert client.post("/mcp", json={}).status_code == 404
    assert client.post("/seed_session", json=ROW).json() == {}
