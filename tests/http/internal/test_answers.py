"""Requests and replies of any framing arrive complete and unchanged."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
import uvicorn

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply
from nemo_gym.web.shutdown import answering
from tests.each_case import each_case
from tests.http.faulty_server import FaultyServer
from tests.http.internal.asking import ask, on_both_loops


@on_both_loops
async def test_request_and_reply_arrive_unchanged(server):
    async with InternalClient() as client:
        headers = [(b"Content-Type", b"text/plain"), (b"Cookie", b"session=abc")]
        reply = await ask(client, server, "/echo", "POST", body=b"hello", headers=headers)
    assert (reply.status, reply.ok, reply.body, reply.reason) == (200, True, b"hello", "OK")
    assert reply.headers["Content-Length"] == "5"
    assert (reply.method, reply.url) == ("POST", f"http://127.0.0.1:{server.port}/echo")
    (request,) = server.requests
    assert (request.method, request.body) == ("POST", b"hello")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "text/plain",
        "cookie": "session=abc",
        "content-length": "5",
    }


@on_both_loops
async def test_body_has_the_published_read_methods(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/echo", "POST", body=b'{"reward": 1.0}')
    assert await reply.read() == await reply.content.read() == b'{"reward": 1.0}'
    assert await reply.text() == '{"reward": 1.0}'
    assert await reply.json() == {"reward": 1.0}
    assert await reply.json(loads=len) == 15
    # Callers written for aiohttp often pass `content_type=None` to disable its check.
    assert await reply.json(content_type=None, encoding="utf-8") == await reply.json()


@on_both_loops
@each_case(
    ("path", "body", "is_kept"),
    [
        ("/chunked", b"hello, world", True),
        ("/trailers", b"hi", True),
        ("/large/3000000", b"x" * 3_000_000, True),
        ("/large-chunked/2000", b"y" * 2_048_000, True),
        ("/drip/0.001", b"drop by drop", True),
        ("/interim", b"final", True),
        ("/status/200", b"in full", True),
        ("/status/204", b"", True),
        ("/status/304", b"", True),
        ("/status/599", b"in full", True),
        ("/until-eof", b"all there is", False),
        ("/connection-close", b"bye", False),
        ("/surplus", b"mine", False),
    ],
)
async def test_reply_of_any_framing_is_complete(server, path, body, is_kept):
    earlier = server.connections
    async with InternalClient() as client:
        assert (await ask(client, server, path)).body == body
        assert (await ask(client, server, path)).body == body
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"
    assert server.connections - earlier == (1 if is_kept else 3)


@on_both_loops
async def test_reply_to_head_has_no_body(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/head-only", "HEAD")
        assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "1000")
        assert (await ask(client, server, "/chunked")).body == b"hello, world"


@on_both_loops
async def test_pieces_of_request_arrive_in_order(server):
    pieces = [b"[", b"a" * 3_000_000, b",", "é".encode() * 1_000_000, b"]"]
    async with InternalClient() as client:
        assert (await ask(client, server, "/echo", "POST", body=pieces)).body == b"".join(pieces)
        assert (await ask(client, server, "/echo", "POST", body=[b"next"])).body == b"next"


@on_both_loops
async def test_large_request_arrives_complete(server):
    body = random.Random(5).randbytes(5_000_000)
    async with InternalClient() as client:
        assert (await ask(client, server, "/echo", "POST", body=body)).body == body


@on_both_loops
async def test_early_reply_is_returned_and_closes_the_connection(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/early", "POST", body=b"z" * 30_000_000)
        assert (reply.status, reply.body) == (413, b"too large for me")
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"
    assert server.connections == 2


@on_both_loops
async def test_request_url_accepts_a_full_url(server):
    async with InternalClient() as client:
        reply = await client.request_url("GET", f"http://127.0.0.1:{server.port}/describe?a=1&b=2#part")
    assert reply.body.split()[1] == b"/describe?a=1&b=2"


@on_both_loops
async def test_unix_sockets_work(tmp_path):
    with FaultyServer(uds=str(tmp_path / "server.sock")) as server:
        async with InternalClient() as client:
            assert (await ask(client, server, "/echo", "POST", body=b"near")).body == b"near"
            quoted = server.uds.replace("/", "%2F")
            reply = await client.request_url("GET", f"http+unix://{quoted}/describe")
            assert reply.body.startswith(b"GET /describe 1 localhost:80")
        assert server.connections == 2


@on_both_loops
async def test_client_waits_for_a_full_unix_backlog(tmp_path):
    with FaultyServer(uds=str(tmp_path / "server.sock"), backlog=1) as server:
        async with InternalClient() as client:
            replies = await asyncio.gather(*(ask(client, server, "/slow/0.05") for _ in range(100)))
        assert {reply.body for reply in replies} == {b"at last"}


@on_both_loops
async def test_ipv6_works():
    try:
        with FaultyServer(host="::1") as server:
            async with InternalClient() as client:
                for host in ("::1", "[::1]"):
                    reply = await client.request("GET", host, server.port, "/describe")
                    assert reply.body.split()[3] == f"[::1]:{server.port}".encode()
                reply = await client.request_url("GET", f"http://[::1]:{server.port}/describe")
                assert reply.body.split()[3] == f"[::1]:{server.port}".encode()
    except OSError as error:
        pytest.skip(f"IPv6 loopback is not available: {error}")


@on_both_loops
async def test_client_works_with_uvicorn():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (scope["path"].encode(), b" ", message["body"]):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_keep_alive=75)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with answering(config, listener), InternalClient() as client:
        for _ in range(3):
            reply = await client.request("POST", "127.0.0.1", port, "/verify", body=b"answer")
            assert reply.body == b"/verify answer"
            assert reply.headers["transfer-encoding"] == "chunked"


# Headers and cookies


def test_headers_ignore_case_and_keep_every_value():
    reply = Reply(200, [(b"Set-Cookie", b"a=1"), (b"X-Name", b"caf\xe9"), (b"set-cookie", b"b=2")], b"", "GET", "/")
    assert reply.headers["x-NAME"] == "café"
    assert "X-Name" in reply.headers
    assert "missing" not in reply.headers
    assert reply.headers.get("missing") is None
    assert reply.headers["set-cookie"] == "a=1"
    assert [value for name, value in reply.headers.raw if name.lower() == b"set-cookie"] == [b"a=1", b"b=2"]
    assert list(reply.headers) == ["set-cookie", "x-name"]


@on_both_loops
async def test_cookies_are_returned_but_not_resent(server):
    async with InternalClient() as client:
        baked = await ask(client, server, "/bake/first")
        assert {name: morsel.value for name, morsel in baked.cookies.items()} == {"session": "first", "theme": "dark"}
        assert baked.cookies["session"]["samesite"] == "lax"
        assert baked.set_cookie_values[1] == "theme=dark"
        next_one = await ask(client, server, "/describe")
        assert next_one.body.endswith(b" -")
        assert not next_one.cookies
    assert server.connections == 1, "the same connection served both, so only the client could have remembered"


@on_both_loops
async def test_trailers_are_not_headers(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/trailers")
    assert "checksum" not in reply.headers
    assert not reply.cookies
