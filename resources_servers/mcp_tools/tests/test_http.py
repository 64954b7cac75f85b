"""MCP servers over Streamable HTTP: the SDK's own, with both kinds of the protocol, and stubs that break."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn

from nemo_gym import EnvironmentFailed, Overloaded
from nemo_gym.testing import make_server, rollout, serving

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is an extra: pip install 'nemo-gym[mcp]' 'mcp>=2'")

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from resources_servers.mcp_tools.app import McpToolsServer

ROW = {"expected_answer": "3"}
FULL_ROW = {"responses_create_params": {"input": []}, **ROW}
MEBIBYTE = 2**20


@asynccontextmanager
async def listening(app):
    """Serve an ASGI app and yield its URL."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        task = asyncio.create_task(server.serve([taken]))
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await task


def served(url, **settings):
    settings = {"start_timeout_s": 60, "tool_timeout_s": 60, "largest_message_mb": 1, **settings}
    return make_server(McpToolsServer, mcp_servers={"far": {"url": url, "headers": {"x-key": "sk-12345"}}}, **settings)


class Versions:
    """An app that records the protocol versions of the requests, and can speak only the older ones."""

    def __init__(self, app, *, is_old):
        self.app, self.is_old, self.seen, self.keys = app, is_old, [], set()

    async def __call__(self, scope, receive, send):
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", [])}
        if scope["type"] == "http":
            self.seen.append(headers.get("mcp-protocol-version"))
            self.keys.add(headers.get("x-key"))
            if self.is_old and self.seen[-1] == "2026-07-28":
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"unknown version"})
                return
        await self.app(scope, receive, send)


async def until_listed(client, tool):
    """Call a tool until the announced change of the list has arrived, which has a stream of its own."""
    async with asyncio.timeout(60):
        while tool not in [each["name"] for each in (await client.get("/session_tools")).json()]:
            await client.post("/double", json={"n": 1})
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_old", [True, False])
async def test_server_of_either_protocol_is_played(is_old):
    server = MCPServer("far")

    @server.tool()
    def double(n: int) -> int:
        return 2 * n

    @server.tool()
    async def learn(context: Context) -> str:
        server.add_tool(triple)
        if is_old:
            await context.session.send_tool_list_changed()
        else:
            await context.notify_tools_changed()
        return "done"

    def triple(n: int) -> int:
        return 3 * n

    app = Versions(server.streamable_http_app(stateless_http=not is_old), is_old=is_old)
    async with listening(app) as url, serving(served(url)) as client:
        assert (await client.post("/seed_session", json=FULL_ROW)).status_code == 200
        assert (await client.post("/double", json={"n": 4})).text == "8"
        wrong = await client.post("/double", json={"n": "four"})
        assert wrong.status_code == 422
        assert (await client.post("/learn", json={})).text == "done"
        await until_listed(client, "triple")
        assert (await client.post("/triple", json={"n": 5})).text == "15"
        await client.post("/close_session")
    assert (app.seen[-1] == "2026-07-28") is not is_old
    assert app.keys == {"sk-12345"}


@asynccontextmanager
async def raw(answer):
    """Serve connections with `answer(request, writer)` and yield the URL."""

    async def answered(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if b"content-length" in x), 0
                )
                await answer(await reader.readexactly(length), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


HEAD = "HTTP/1.1 {} X\r\nconnection: close\r\ncontent-type: {}\r\n{}\r\n"


async def busy(_, writer):
    writer.write(HEAD.format("503", "text/plain", "content-length: 0\r\n").encode())


async def forbidden(_, writer):
    writer.write(HEAD.format("401", "text/plain", "content-length: 8\r\n").encode() + b"sk-12345")


async def long_reply(_, writer):
    writer.write(HEAD.format("200", "application/json", "").encode())
    while True:
        writer.write(b" " * MEBIBYTE)
        await writer.drain()


async def long_event(_, writer):
    writer.write(HEAD.format("200", "text/event-stream", "").encode() + b"data: ")
    while True:
        writer.write(b"x" * MEBIBYTE)
        await writer.drain()


async def bomb(_, writer):
    writer.write(HEAD.format("200", "application/json", "content-encoding: gzip\r\n").encode())
    writer.close()


async def silence(_, writer):
    writer.write(HEAD.format("200", "text/event-stream", "").encode())
    await asyncio.sleep(600)


async def comments(_, writer):
    writer.write(HEAD.format("200", "text/event-stream", "").encode())
    while True:
        writer.write(b": still there\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def hang_up(_, writer):
    writer.close()


async def half_a_frame(_, writer):
    writer.write(HEAD.format("200", "application/json", "content-length: 100\r\n").encode() + b'{"jsonrpc')
    writer.close()


async def nonsense(_, writer):
    writer.write(HEAD.format("200", "application/json", "content-length: 4\r\n").encode() + b"[[[[")


async def elsewhere(_, writer):
    writer.write(HEAD.format("307", "text/plain", "location: http://127.0.0.1:9/\r\ncontent-length: 0\r\n").encode())


@pytest.mark.parametrize(
    "answer", [forbidden, long_reply, long_event, bomb, silence, comments, hang_up, half_a_frame, nonsense, elsewhere]
)
async def test_server_that_breaks_fails_the_rollout(answer):
    async with raw(answer) as url:
        with pytest.raises(EnvironmentFailed, match=r"^mcp_servers\.far: ") as failed:
            async with rollout(served(url, start_timeout_s=3), **ROW):
                pass
    assert "sk-12345" not in str(failed.value)
    assert "127.0.0.1:9/" not in str(failed.value) or answer is elsewhere


async def test_busy_server_is_overload():
    async with raw(busy) as url:
        with pytest.raises(Overloaded, match="HTTP status 503"):
            async with rollout(served(url), **ROW):
                pass


async def test_server_that_is_not_there_fails_the_rollout():
    async with raw(hang_up) as url:
        pass
    with pytest.raises(EnvironmentFailed, match="ConnectError"):
        async with rollout(served(url), **ROW):
            pass
