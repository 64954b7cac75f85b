"""The gateway between a program and the servers: failed calls, large requests, and its secret path."""

import logging
import socket

import httpx
import orjson

from nemo_gym.context.current import Work, begin_work, end_work
from nemo_gym.context.spent import Spent
from nemo_gym.errors import EnvironmentFailed, ServerLost
from nemo_gym.harness import Gateway, ToolAddress
from nemo_gym.harness.gateway import LARGEST_REQUEST_BYTES
from nemo_gym.http.reply import HungUp, Reply
from tests.each_case import each_case

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


class FakeClient:
    """A client whose calls end one after another as the list says."""

    def __init__(self, *ends):
        self.ends = list(ends)

    async def post(self, server, path, **_):
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        status, body = (200, end) if isinstance(end, bytes) else (end, b"x")
        return Reply(status, [], body, "POST", path)


@each_case(
    ("ends", "failure", "statuses"),
    [
        ([200, 404], None, [200, 404]),
        ([HungUp("the server hung up"), 200], ServerLost, [502, 200]),
        ([503, HungUp("the server hung up"), 200], EnvironmentFailed, [503, 502, 200]),
    ],
)
async def test_first_failure_of_a_tool_is_kept(ends, failure, statuses):
    gateway = Gateway(FakeClient(*ends), "policy", tools=ToolAddress("environment"))
    async with gateway.serving(socket.create_server(("127.0.0.1", 0))) as url, httpx.AsyncClient() as client:
        assert [(await client.post(f"{url}/mcp", json=LIST)).status_code for _ in statuses] == statuses
    assert (gateway.tool_failure and type(gateway.tool_failure)) == failure


async def test_tool_calls_over_mcp_are_counted_by_name():
    results = [{"content": []}, {"content": [], "isError": True}, None]
    answers = [orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result}) for result in results]
    spent = Spent()
    token = begin_work(Work(spent=spent))
    gateway = Gateway(FakeClient(*answers, b"{}"), "policy", tools=ToolAddress("environment"))
    end_work(token)
    async with gateway.serving(socket.create_server(("127.0.0.1", 0))) as url, httpx.AsyncClient() as client:
        for name in ("look", "look", "take"):
            await client.post(f"{url}/mcp", json={**LIST, "method": "tools/call", "params": {"name": name}})
        await client.post(f"{url}/mcp", json=LIST)
    assert spent.tools == {"look": (2, 1), "take": (1, 1)}


async def test_large_request_is_rejected():
    gateway = Gateway(FakeClient(200), "policy", tools=ToolAddress("environment"))
    async with (
        gateway.serving(socket.create_server(("127.0.0.1", 0))) as url,
        httpx.AsyncClient(timeout=100) as client,
    ):
        refused = await client.post(f"{url}/mcp", content=bytes(LARGEST_REQUEST_BYTES + 1))
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error")
        assert (await client.post(f"{url}/mcp", json=LIST)).status_code == 200


async def test_access_log_lacks_the_secret(caplog):
    log = logging.getLogger("uvicorn.access")
    caplog.set_level(logging.INFO, log.name)
    log.addHandler(caplog.handler)
    try:
        gateway = Gateway(FakeClient(), "policy")
        async with gateway.serving(socket.create_server(("127.0.0.1", 0))) as url, httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/v1/models")).status_code == 200
    finally:
        log.removeHandler(caplog.handler)
    assert '"GET /v1/models HTTP/1.1" 200' in caplog.text
    assert url.rpartition("/")[2] not in caplog.text
