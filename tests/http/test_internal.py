"""The client between our own servers: whole answers, errors told apart, connections that are safe to reuse."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvicorn
import uvloop

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import BrokenReply, HungUp, NotConnected, Reply, ReplyTimedOut, ServerReplied, Timeouts
from nemo_gym.testing import answering

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def load_faulty_server() -> ModuleType:
    path = Path(__file__).with_name("faulty_server.py")
    spec = importlib.util.spec_from_file_location("faulty_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["faulty_server"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FaultyServer = load_faulty_server().FaultyServer


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test once on asyncio's loop and once on uvloop's."""

    def run(loop_kind: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
            runner.run(test(**arguments))

    functools.update_wrapper(run, test)
    parameters = inspect.signature(test).parameters.values()
    extra = inspect.Parameter("loop_kind", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([extra, *parameters])
    del run.__wrapped__
    return pytest.mark.parametrize("loop_kind", LOOPS)(run)


@pytest.fixture
def server() -> Iterator[Any]:
    with FaultyServer() as faulty:
        yield faulty


async def ask(client: InternalClient, server: Any, path: str, method: str = "GET", **options: Any) -> Reply:
    return await client.request(method, server.host, server.port, path, uds=server.uds, **options)


# Whole answers


@on_both_loops
async def test_a_request_arrives_as_it_was_meant_and_its_answer_as_it_was_sent(server):
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
async def test_the_body_is_read_in_every_way_that_the_published_reply_offers(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/echo", "POST", body=b'{"reward": 1.0}')
    assert await reply.read() == await reply.content.read() == b'{"reward": 1.0}'
    assert await reply.text() == '{"reward": 1.0}'
    assert await reply.json() == {"reward": 1.0}
    assert await reply.json(loads=len) == 15


@pytest.mark.parametrize(
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
@on_both_loops
async def test_an_answer_of_any_framing_is_whole_and_the_connection_is_reused_where_it_can_be(
    server, path, body, is_kept
):
    async with InternalClient() as client:
        assert (await ask(client, server, path)).body == body
        assert (await ask(client, server, path)).body == body
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"
    assert server.connections == (1 if is_kept else 3)


@on_both_loops
async def test_the_answer_to_head_has_no_body_whatever_its_headers_announce(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/head-only", "HEAD")
        assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "1000")
        assert (await ask(client, server, "/chunked")).body == b"hello, world"


@on_both_loops
async def test_a_large_request_arrives_whole(server):
    body = random.Random(5).randbytes(5_000_000)
    async with InternalClient() as client:
        assert (await ask(client, server, "/echo", "POST", body=body)).body == body


@on_both_loops
async def test_an_answer_given_before_the_request_was_read_counts_and_costs_the_connection(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/early", "POST", body=b"z" * 30_000_000)
        assert (reply.status, reply.body) == (413, b"too large for me")
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"
    assert server.connections == 2


@on_both_loops
async def test_one_url_says_where_to_go(server):
    async with InternalClient() as client:
        reply = await client.request_url("GET", f"http://127.0.0.1:{server.port}/tell?a=1&b=2#part")
    assert reply.body.split()[1] == b"/tell?a=1&b=2"


@on_both_loops
async def test_a_unix_socket_serves_as_well(tmp_path):
    with FaultyServer(uds=str(tmp_path / "server.sock")) as server:
        async with InternalClient() as client:
            assert (await ask(client, server, "/echo", "POST", body=b"near")).body == b"near"
            quoted = server.uds.replace("/", "%2F")
            reply = await client.request_url("GET", f"http+unix://{quoted}/tell")
            assert reply.body.startswith(b"GET /tell 1 localhost:80")
        assert server.connections == 2


@on_both_loops
async def test_a_unix_socket_with_a_full_backlog_is_waited_for(tmp_path):
    with FaultyServer(uds=str(tmp_path / "server.sock"), backlog=1) as server:
        async with InternalClient() as client:
            replies = await asyncio.gather(*(ask(client, server, "/slow/0.05") for _ in range(100)))
        assert {reply.body for reply in replies} == {b"at last"}


@on_both_loops
async def test_ipv6_serves_as_well():
    try:
        with FaultyServer(host="::1") as server:
            async with InternalClient() as client:
                for host in ("::1", "[::1]"):
                    reply = await client.request("GET", host, server.port, "/tell")
                    assert reply.body.split()[3] == f"[::1]:{server.port}".encode()
                reply = await client.request_url("GET", f"http://[::1]:{server.port}/tell")
                assert reply.body.split()[3] == f"[::1]:{server.port}".encode()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


@on_both_loops
async def test_uvicorn_and_the_client_agree():
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


def test_headers_are_found_in_any_case_and_keep_every_value():
    reply = Reply(200, [(b"Set-Cookie", b"a=1"), (b"X-Name", b"caf\xe9"), (b"set-cookie", b"b=2")], b"", "GET", "/")
    assert reply.headers["x-NAME"] == "café"
    assert "X-Name" in reply.headers
    assert "missing" not in reply.headers
    assert reply.headers.get("missing") is None
    assert reply.headers["set-cookie"] == "a=1"
    assert reply.headers.getall("Set-Cookie") == ["a=1", "b=2"]
    assert list(reply.headers) == ["set-cookie", "x-name"]


@on_both_loops
async def test_cookies_are_told_and_never_sent_again_by_themselves(server):
    async with InternalClient() as client:
        baked = await ask(client, server, "/bake/first")
        assert {name: morsel.value for name, morsel in baked.cookies.items()} == {"session": "first", "theme": "dark"}
        assert baked.cookies["session"]["samesite"] == "lax"
        assert baked.set_cookie_values[1] == "theme=dark"
        next_one = await ask(client, server, "/tell")
        assert next_one.body.endswith(b" -")
        assert not next_one.cookies
    assert server.connections == 1, "the same connection served both, so only the client could have remembered"


@on_both_loops
async def test_trailers_are_not_taken_for_headers(server):
    async with InternalClient() as client:
        reply = await ask(client, server, "/trailers")
    assert "checksum" not in reply.headers
    assert not reply.cookies


# What the caller did wrong


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("post", "/echo", []),
        ("GET /x HTTP/1.1\r\nx:", "/echo", []),
        ("GET", "echo", []),
        ("GET", "/two words", []),
        ("GET", "/a HTTP/1.1\r\nx: y", []),
        ("GET", "/café", []),
        ("GET", "/echo", [(b"x", b"a\r\nset-cookie: b")]),
        ("GET", "/echo", [(b"x", b"a\nb")]),
        ("GET", "/echo", [(b"x\r\ny", b"a")]),
        ("GET", "/echo", [(b"Content-Length", b"3")]),
        ("GET", "/echo", [(b"transfer-encoding", b"chunked")]),
        ("GET", "/echo", [(b"Host", b"elsewhere")]),
    ],
)
@on_both_loops
async def test_what_would_not_be_one_sound_request_is_never_sent(server, method, path, headers):
    async with InternalClient() as client:
        with pytest.raises(ValueError):  # noqa: PT011 - several messages
            await ask(client, server, path, method, headers=headers)
    assert not server.requests


@pytest.mark.parametrize("url", ["https://127.0.0.1/x", "127.0.0.1:80/x", "http:///x", "ftp://127.0.0.1/x"])
async def test_a_url_that_is_not_for_our_own_servers_is_refused(url):
    async with InternalClient() as client:
        with pytest.raises(ValueError, match="between our own servers"):
            await client.request_url("GET", url)


# Errors that can be told apart


def test_a_bad_status_is_raised_only_when_asked_and_shows_the_body():
    reply = Reply(422, [], b'{"detail": "no such tool"}' + b" " * 100_000, "POST", "http://127.0.0.1:1/tool")
    assert not reply.ok
    with pytest.raises(ServerReplied, match=r"^POST http://127.0.0.1:1/tool: answered 422 .*no such tool") as raised:
        reply.raise_for_status()
    assert (raised.value.status, raised.value.url, raised.value.was_sent) == (422, "http://127.0.0.1:1/tool", True)
    assert len(raised.value.response_content) == 65_536
    assert len(str(raised.value)) < 1000
    Reply(399, [], b"", "GET", "/").raise_for_status()


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("/close-before", HungUp, "closed the connection, which was new, before the first byte of an answer"),
        ("/reset", HungUp, "broke the connection"),
        ("/close-in-headers", BrokenReply, "closed the connection within the headers, after 27 bytes"),
        ("/close-in-body", BrokenReply, "closed the connection within the body, after 7 of 10 bytes"),
        ("/close-in-chunks", BrokenReply, "closed the connection within the body, after 5 bytes"),
        ("/reset-in-body", BrokenReply, "broke the connection"),
        ("/garbage", BrokenReply, "not a reply in HTTP/1.1"),
        ("/garbage-in-chunks", BrokenReply, "not a reply in HTTP/1.1"),
        ("/two-lengths", BrokenReply, "not a reply in HTTP/1.1"),
        ("/switch", BrokenReply, "switched to another protocol"),
        ("/silent", ReplyTimedOut, r"no byte for 0.2 s \(read_s\) while waiting for the first byte"),
        ("/head-only", ReplyTimedOut, "while waiting for the body, after 0 of 1000 bytes"),
        ("/drip/0.02", ReplyTimedOut, r"no whole answer within 0.5 s \(total_s\), still waiting for the headers"),
        ("/slow/0.3", ReplyTimedOut, "no byte for 0.2 s"),
    ],
)
@pytest.mark.parametrize("was_used", [False, True])
@on_both_loops
async def test_each_fault_has_its_error_and_costs_only_its_connection(server, path, kind, message, was_used):
    if was_used:
        message = message.replace("which was new", "which had served 1 before")
    async with InternalClient(timeouts=Timeouts(read_s=0.2, total_s=0.5)) as client:
        if was_used:
            await ask(client, server, "/echo", "POST", body=b"first")
        began = time.monotonic()
        with pytest.raises(ServerCallError, match=message) as raised:
            await ask(client, server, path)
        assert time.monotonic() - began < 2
        assert type(raised.value) is kind
        assert raised.value.was_sent
        assert str(raised.value).startswith(f"GET http://127.0.0.1:{server.port}{path}: ")
        if isinstance(raised.value, HungUp):
            assert raised.value.was_reused is was_used
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"


@pytest.mark.parametrize("path", ["/endless-headers", "/endless-interim", "/endless-trailer"])
@on_both_loops
async def test_headers_are_bounded(server, path):
    async with InternalClient(max_head_bytes=50_000) as client:
        with pytest.raises(BrokenReply, match="headers are larger than the 50000 bytes"):
            await ask(client, server, path)


@pytest.mark.parametrize("path", ["/large/1001", "/large/9000000", "/large-chunked/1", "/large-chunked/1000"])
@on_both_loops
async def test_bodies_are_bounded(server, path):
    async with InternalClient(max_body_bytes=1000) as client:
        assert len((await ask(client, server, "/large/1000")).body) == 1000
        with pytest.raises(BrokenReply, match="body is larger than the 1000 bytes"):
            await ask(client, server, path)
        assert len((await ask(client, server, "/large/999")).body) == 999


@on_both_loops
async def test_the_read_timeout_counts_silence_not_the_whole_answer(server):
    async with InternalClient(timeouts=Timeouts(read_s=0.15)) as client:
        began = time.monotonic()
        reply = await ask(client, server, "/drip/0.005")
        assert time.monotonic() - began > 0.15
    assert reply.body == b"drop by drop"


@on_both_loops
async def test_a_short_timeout_after_a_long_one_and_the_other_way_round(server):
    async with InternalClient() as client:
        for _ in range(2):
            assert (await ask(client, server, "/slow/0", timeouts=Timeouts(read_s=0.1))).ok
            assert (await ask(client, server, "/slow/0.25", timeouts=Timeouts(read_s=9))).ok
            assert (await ask(client, server, "/slow/0.01")).ok
        assert server.connections == 1
        began = time.monotonic()
        with pytest.raises(ReplyTimedOut):
            await ask(client, server, "/silent", timeouts=Timeouts(read_s=0.1))
        assert 0.09 < time.monotonic() - began < 1
        assert (await ask(client, server, "/slow/0", timeouts=Timeouts(*[float("inf")] * 4))).ok


@on_both_loops
async def test_a_refused_connection_was_never_sent_and_says_so_at_once():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        async with InternalClient() as client:
            with pytest.raises(
                NotConnected, match=f"^POST http://127.0.0.1:{port}/x: no connection: Connection refused"
            ):
                await client.request("POST", "127.0.0.1", port, "/x", body=b"y")


@on_both_loops
async def test_a_missing_socket_file_or_host_was_never_sent(tmp_path):
    async with InternalClient() as client:
        with pytest.raises(NotConnected, match="No such file") as raised:
            await client.request("GET", "agent", 80, "/x", uds=str(tmp_path / "none.sock"))
        assert not raised.value.was_sent
        with pytest.raises(NotConnected, match="no connection"):
            await client.request("GET", f"{'h' * 70}.invalid", 80, "/x")


@on_both_loops
async def test_a_server_that_never_accepts_is_given_up_in_time():
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with InternalClient() as client:
            began = time.monotonic()
            with pytest.raises(NotConnected, match=r"no connection within 0.2 s") as raised:
                await client.request("GET", *full.getsockname(), "/x", timeouts=Timeouts(connect_s=0.2))
            assert 0.15 < time.monotonic() - began < 1
            assert not raised.value.was_sent
            with pytest.raises(NotConnected, match=r"no connection within 0\.(1|09\d*) s"):
                await client.request("GET", *full.getsockname(), "/x", timeouts=Timeouts(total_s=0.1))


# Reuse


@on_both_loops
async def test_the_connection_used_last_is_used_next(server):
    async with InternalClient() as client:
        await asyncio.gather(*(ask(client, server, "/meet/3") for _ in range(3)))
        told = [(await ask(client, server, "/tell")).body.split()[2] for _ in range(5)]
    assert server.connections == 3
    assert len(set(told)) == 1


@on_both_loops
async def test_no_connection_ever_carries_two_requests_at_once(server):
    async with InternalClient() as client:
        for _ in range(5):
            await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(20)))
    assert server.connections == 20
    assert server.most_at_once == 20


@on_both_loops
async def test_a_client_that_lets_go_before_the_server_does_never_loses_the_race():
    with FaultyServer(idle_s=0.20) as server:
        async with InternalClient(idle_s=0.08) as client:
            chance = random.Random(1)

            async def call_now_and_then() -> None:
                for _ in range(6):
                    assert (await ask(client, server, "/echo", "POST", body=b"again")).body == b"again"
                    await asyncio.sleep(chance.uniform(0.07, 0.24))

            await asyncio.gather(*(call_now_and_then() for _ in range(200)))
    assert len(server.requests) == 1200


@on_both_loops
async def test_connections_that_the_server_closed_while_idle_are_not_used():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            for _ in range(2):
                known = server.connections
                replies = await asyncio.gather(*(ask(client, server, "/tell") for _ in range(200)))
                assert min(int(reply.body.split()[2]) for reply in replies) == known
                await asyncio.sleep(0.3)


@on_both_loops
async def test_a_connection_closed_while_the_event_loop_was_busy_is_not_used():
    with FaultyServer(idle_s=0.05) as server:
        async with InternalClient() as client:
            await ask(client, server, "/echo")
            time.sleep(0.3)  # noqa: ASYNC251 - the loop must not come round to notice
            assert (await ask(client, server, "/echo", "POST", body=b"fine")).body == b"fine"
    assert server.connections == 2


@on_both_loops
async def test_a_connection_older_than_the_idle_limit_is_not_used_even_where_the_server_keeps_it(server):
    async with InternalClient(idle_s=0.05) as client:
        await ask(client, server, "/echo")
        time.sleep(0.1)  # noqa: ASYNC251 - so that no timer has come to close it
        await ask(client, server, "/echo")
    assert server.connections == 2


@on_both_loops
async def test_an_answer_that_nobody_asked_for_is_never_taken_for_the_next_one(server):
    async with InternalClient() as client:
        for path in ("/surplus", "/afterthought"):
            assert (await ask(client, server, path)).body == b"mine"
            await asyncio.sleep(0.1)
            assert (await ask(client, server, "/echo", "POST", body=b"my own")).body == b"my own"


@on_both_loops
async def test_idle_connections_are_let_go_without_further_requests(server):
    async with InternalClient(idle_s=0.05) as client:
        await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(10)))
        assert server_side_connections(server) == 10
        await asyncio.sleep(0.3)
        assert server_side_connections(server) == 0


def server_side_connections(server: Any) -> int:
    """How many connections the server still serves."""
    return len(server._served)


@on_both_loops
async def test_cancelling_a_request_closes_its_connection_and_no_other(server):
    async with InternalClient() as client:
        await ask(client, server, "/echo")
        under_way = asyncio.create_task(ask(client, server, "/slow/0.2"))
        beside = asyncio.create_task(ask(client, server, "/slow/0.2"))
        await asyncio.sleep(0.1)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        assert (await ask(client, server, "/echo", "POST", body=b"clean")).body == b"clean"
        assert (await beside).body == b"at last"
    assert server.connections == 3


@on_both_loops
async def test_a_cancelled_request_gives_up_its_place_at_once(server):
    async with InternalClient(max_connections=1) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(client, server, "/silent"), 0.05)
        assert (await asyncio.wait_for(ask(client, server, "/echo", "POST", body=b"mine"), 1)).body == b"mine"


@on_both_loops
async def test_requests_cancelled_at_any_moment_leave_no_answer_for_others(server):
    chance = random.Random(3)
    async with InternalClient(max_connections=10) as client:

        async def call(number: int) -> None:
            body = b"%d" % number
            try:
                async with asyncio.timeout(chance.choice([0.0, 0.001, 0.003, 0.01, 5])):
                    assert (await ask(client, server, "/echo", "POST", body=body)).body == body
            except TimeoutError:
                pass

        for _ in range(5):
            await asyncio.gather(*(call(number) for number in range(200)))
        replies = await asyncio.gather(*(ask(client, server, "/slow/0.01") for _ in range(30)))
        assert all(reply.ok for reply in replies)
    assert server.most_at_once <= 20, "ten, and at most as many that were given up and not yet noticed"


# Many, and bounded


@on_both_loops
async def test_two_thousand_requests_are_under_way_at_once(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip(f"this machine allows {hard} open files; client and server need 4,000 here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    async with InternalClient() as client:
        replies = await asyncio.gather(*(ask(client, server, "/meet/2000") for _ in range(2000)))
    assert {reply.body for reply in replies} == {b"met"}
    assert server.connections == 2000


@on_both_loops
async def test_under_a_limit_requests_wait_their_turn(server):
    order: list[int] = []
    async with InternalClient(max_connections=4) as client:

        async def call(number: int) -> None:
            await ask(client, server, "/slow/0.01")
            order.append(number)

        await asyncio.gather(*(call(number) for number in range(40)))
    assert server.connections == 4
    assert server.most_at_once == 4
    assert all(abs(place - number) < 8 for place, number in enumerate(order)), "first come, first served"


@pytest.mark.parametrize("path", ["/close-before", "/connection-close", "/garbage"])
@on_both_loops
async def test_under_a_limit_a_lost_connection_makes_room_for_the_next(server, path):
    async with InternalClient(max_connections=2) as client:
        await asyncio.gather(*(ask(client, server, path) for _ in range(20)), return_exceptions=True)
        assert (await ask(client, server, "/echo", "POST", body=b"room")).body == b"room"
    assert server.connections == 21
    assert server.most_at_once <= 4


@on_both_loops
async def test_waiting_for_a_free_connection_is_bounded_and_was_never_sent(server):
    async with InternalClient(max_connections=1) as client:
        holder = asyncio.create_task(ask(client, server, "/slow/0.5"))
        await asyncio.sleep(0.1)
        with pytest.raises(NotConnected, match=r"none of the 1 connections .* became free within 0.1 s"):
            await ask(client, server, "/echo", timeouts=Timeouts(queue_s=0.1))
        patient = asyncio.create_task(ask(client, server, "/echo"))
        assert (await holder).ok
        assert (await patient).ok
    assert server.connections == 1


@on_both_loops
async def test_under_a_limit_refused_connections_do_not_use_it_up():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with InternalClient(max_connections=2) as client:
            for _ in range(3):
                failures = await asyncio.gather(
                    *(client.request("GET", *bound.getsockname(), "/x") for _ in range(10)), return_exceptions=True
                )
                assert {type(failure) for failure in failures} == {NotConnected}


# Closing, and several loops


@on_both_loops
async def test_closing_ends_what_is_under_way_and_is_final(server):
    client = InternalClient(max_connections=2)
    under_way = [asyncio.create_task(ask(client, server, "/silent")) for _ in range(4)]
    await asyncio.sleep(0.1)
    await client.close()
    ends = await asyncio.wait_for(asyncio.gather(*under_way, return_exceptions=True), 1)
    assert [type(end) for end in ends] == [BrokenReply, BrokenReply, NotConnected, NotConnected]
    assert all("client was closed" in str(end) for end in ends)
    with pytest.raises(NotConnected, match="has been closed"):
        await ask(client, server, "/echo")
    await client.close()


def test_one_client_serves_several_loops_after_each_other_and_beside_each_other(server):
    client = InternalClient()

    async def call() -> bytes:
        return (await ask(client, server, "/slow/0.05")).body

    async def call_and_close() -> None:
        await call()
        await client.close()

    bodies: list[bytes] = []
    threads = [threading.Thread(target=lambda: bodies.append(asyncio.run(call()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies == [b"at last"] * 4
    assert uvloop.run(call()) == b"at last"
    asyncio.run(call_and_close())
