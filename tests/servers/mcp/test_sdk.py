"""The requests and responses at `/mcp`, which are the same with each version of the MCP SDK."""

from __future__ import annotations

import httpx
import pytest

from tests.servers.mcp.mcp_servers import COUNTING

HEADERS = {"accept": "application/json, text/event-stream"}
SEED = {"responses_create_params": {"input": []}, "first": 3}
PICTURE = "data:image/png;base64,aGk="


@pytest.fixture(scope="module")
def url(shared_workplace):
    config = shared_workplace.environment("counting", COUNTING, settings="expose_tools_over_mcp: true")
    return shared_workplace.start_servers(config).servers["counting"]["url"]


@pytest.fixture
def session(url):
    """The headers of a new rollout."""
    seeded = httpx.post(f"{url}/seed_session", json=SEED, trust_env=False, verify=False)
    return seeded.json()["mcp"]["headers"]


def asked(url, headers, method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = httpx.post(f"{url}/mcp", json=request, headers=HEADERS | headers, trust_env=False, verify=False)
    return answer.json()


def called(url, headers, tool, /, **arguments):
    return asked(url, headers, "tools/call", name=tool, arguments=arguments)["result"]


def test_server_introduces_itself(url, session):
    info = {"name": "test", "version": "1"}
    result = asked(url, session, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
    assert result["result"]["serverInfo"]["name"] == "counting"
    assert "tools" in result["result"]["capabilities"]


def test_tools_are_listed_with_their_schemas(url, session):
    add, *others = asked(url, session, "tools/list")["result"]["tools"]
    assert (add["name"], add["description"]) == ("add", "Add to the counter.")
    assert add["inputSchema"]["properties"] == {"by": {"description": "How many", "type": "integer"}}
    assert [each["name"] for each in others] == ["read", "explode", "whose", "draw"]


def test_calls_share_the_state_of_their_rollout(url, session):
    first, second = called(url, session, "add", by=2), called(url, session, "read")
    assert first["content"] == [{"type": "text", "text": "The counter is at 5."}]
    assert (first["isError"], second["content"][0]["text"]) == (False, '{"count":5}')


def test_picture_is_a_block_of_its_own(url, session):
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert called(url, session, "draw", url=PICTURE)["content"] == [{"type": "text", "text": "a dot"}, picture]


@pytest.mark.parametrize(("tool", "said"), [("add", "by"), ("fly", "Unknown tool"), ("explode", "does not work")])
def test_failed_call_is_an_error_result(url, session, tool, said):
    result = called(url, session, tool)
    assert result["isError"]
    assert said in result["content"][0]["text"]


@pytest.mark.parametrize("headers", [{}, {"X-NeMo-Gym-Session-Token": "a.b"}])
def test_call_without_a_token_is_an_error_result(url, headers):
    result = called(url, headers, "add", by=1)
    assert result["isError"]
    assert "counting: the header X-NeMo-Gym-Session-Token" in result["content"][0]["text"]
    listed = asked(url, headers, "tools/list")
    assert "X-NeMo-Gym-Session-Token" in listed["error"]["message"]
