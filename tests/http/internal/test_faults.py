"""Invalid requests are never sent, and each fault has its own error."""

from __future__ import annotations

import socket
import time

import pytest

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import BrokenReply, HungUp, NotConnected, Reply, ReplyTimedOut, ServerReplied, Timeouts
from tests.each_case import each_case
from tests.http.internal.asking import ask, on_both_loops


@on_both_loops
@each_case(
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
async def test_invalid_request_is_not_sent(server, method, path, headers):
    async with InternalClient() as client:
        with pytest.raises(ValueError):  # noqa: PT011 - several messages
            await ask(client, server, path, method, headers=headers)
    assert not server.requests


async def test_rejected_header_is_named_without_its_value(server):
    async with InternalClient() as client:
        with pytest.raises(ValueError, match="the header b'x-other' holds a line break") as error:
            await ask(client, server, "/echo", headers=[(b"x-key", b"made-up"), (b"x-other", b"made-up\n")])
    assert "made-up" not in str(error.value)


async def test_rejected_own_header_names_the_request(server):
    async with InternalClient() as client:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^GET /echo: the client adds the header b'Host' itself"):
                await ask(client, server, "/echo", headers=[(b"Host", b"elsewhere")])


@each_case("url", ["https://127.0.0.1/x", "127.0.0.1:80/x", "http:///x", "ftp://127.0.0.1/x"])
async def test_external_url_is_rejected(url):
    async with InternalClient() as client:
        with pytest.raises(ValueError, match="between nemo_gym's servers"):
            await client.request_url("GET", url)


# Errors of the server


def test_raise_for_status_shows_the_body():
    reply = Reply(422, [], b'{"detail": "no such tool"}' + b" " * 400_000, "POST", "http://127.0.0.1:1/tool")
    assert not reply.ok
    with pytest.raises(ServerReplied, match=r"^POST http://127.0.0.1:1/tool: answered 422 .*no such tool") as raised:
        reply.raise_for_status()
    assert (raised.value.status, raised.value.url, raised.value.was_sent) == (422, "http://127.0.0.1:1/tool", True)
    assert len(raised.value.response_content) == 262_144
    assert len(str(raised.value)) < 1000
    Reply(399, [], b"", "GET", "/").raise_for_status()


TIMEOUTS = {
    "/silent": Timeouts(read_s=0.2),
    "/slow/60": Timeouts(read_s=0.2),
    # The first bytes must arrive in time.
    "/head-only": Timeouts(read_s=1.0),
    "/drip/0.1": Timeouts(total_s=1.0),
}
"""The timeouts of requests that must time out. The others get none, because a busy machine may exceed any."""


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("/close-before", HungUp, "closed the connection, which was new, before the first byte of an answer"),
        ("/reset", HungUp, "broke the connection"),
        ("/close-in-headers", BrokenReply, "closed the connection within the headers, after 27 bytes"),
        ("/close-in-body", BrokenReply, "closed the connection within the body, after 7 of 10 bytes"),
        ("/close-in-chunks", BrokenReply, "closed the connection within the body, after 5 bytes"),
        ("/reset-in-body", BrokenReply, "broke the connection"),
        ("/garbage", BrokenReply, "not valid HTTP/1.1"),
        ("/garbage-in-chunks", BrokenReply, "not valid HTTP/1.1"),
        ("/two-lengths", BrokenReply, "not valid HTTP/1.1"),
        ("/switch", BrokenReply, "switched to another protocol"),
        ("/silent", ReplyTimedOut, r"no byte for 0.2 s \(read_s\) while waiting for the first byte"),
        ("/head-only", ReplyTimedOut, "while waiting for the body, after 0 of 1000 bytes"),
        ("/drip/0.1", ReplyTimedOut, r"no whole answer within 1 s \(total_s\), still waiting for the headers"),
        ("/slow/60", ReplyTimedOut, "no byte for 0.2 s"),
    ],
)
@pytest.mark.parametrize("was_used", [False, True])
@on_both_loops
async def test_each_fault_has_its_own_error(server, path, kind, message, was_used):
    if was_used:
        message = message.replace("which was new", "which had served 1 before")
    async with InternalClient() as client:
        if was_used:
            await ask(client, server, "/echo", "POST", body=b"first")
        with pytest.raises(ServerCallError, match=message) as raised:
            await ask(client, server, path, timeouts=TIMEOUTS.get(path))
        assert type(raised.value) is kind
        assert raised.value.was_sent
        assert str(raised.value).startswith(f"GET http://127.0.0.1:{server.port}{path}: ")
        if isinstance(raised.value, HungUp):
            assert raised.value.was_reused is was_used
        assert (await ask(client, server, "/echo", "POST", body=b"next")).body == b"next"


@pytest.mark.parametrize("path", ["/endless-headers", "/endless-interim", "/endless-trailer"])
@on_both_loops
async def test_header_size_is_limited(server, path):
    async with InternalClient(max_head_bytes=50_000) as client:
        with pytest.raises(BrokenReply, match="headers are larger than the 50000 bytes"):
            await ask(client, server, path)


@pytest.mark.parametrize("path", ["/large/1001", "/large/9000000", "/large-chunked/1", "/large-chunked/1000"])
@on_both_loops
async def test_body_size_is_limited(server, path):
    async with InternalClient(max_body_bytes=1000) as client:
        assert len((await ask(client, server, "/large/1000")).body) == 1000
        with pytest.raises(BrokenReply, match="body is larger than the 1000 bytes"):
            await ask(client, server, path)
        assert len((await ask(client, server, "/large/999")).body) == 999


@on_both_loops
async def test_read_timeout_applies_to_silence_only(server):
    # A busy server may be silent for a second between two bytes.
    async with InternalClient(timeouts=Timeouts(read_s=2.0)) as client:
        began = time.monotonic()
        reply = await ask(client, server, "/drip/0.045")
        assert time.monotonic() - began > 2.0
    assert reply.body == b"drop by drop"


@on_both_loops
async def test_short_and_long_timeouts_alternate(server):
    async with InternalClient() as client:
        for _ in range(2):
            assert (await ask(client, server, "/slow/0", timeouts=Timeouts(read_s=1.0))).ok
            assert (await ask(client, server, "/slow/1.1", timeouts=Timeouts(read_s=60))).ok
            assert (await ask(client, server, "/slow/0.01")).ok
        assert server.connections == 1
        began = time.monotonic()
        with pytest.raises(ReplyTimedOut):
            await ask(client, server, "/silent", timeouts=Timeouts(read_s=0.1))
        assert time.monotonic() - began > 0.09
        assert (await ask(client, server, "/slow/0", timeouts=Timeouts(*[float("inf")] * 4))).ok


@on_both_loops
async def test_refused_connection_fails_at_once():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        async with InternalClient() as client:
            with pytest.raises(
                NotConnected, match=f"^POST http://127.0.0.1:{port}/x: no connection: Connection refused"
            ):
                await client.request("POST", "127.0.0.1", port, "/x", body=b"y")


@on_both_loops
async def test_missing_socket_or_host_is_not_connected(tmp_path):
    async with InternalClient() as client:
        with pytest.raises(NotConnected, match="No such file") as raised:
            await client.request("GET", "agent", 80, "/x", uds=str(tmp_path / "none.sock"))
        assert not raised.value.was_sent
        with pytest.raises(NotConnected, match="no connection"):
            await client.request("GET", f"{'h' * 70}.invalid", 80, "/x")


@on_both_loops
async def test_connecting_to_a_full_backlog_times_out():
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
            assert time.monotonic() - began > 0.15
            assert not raised.value.was_sent
            with pytest.raises(NotConnected, match=r"no connection within 0\.\d+ s"):
                await client.request("GET", *full.getsockname(), "/x", timeouts=Timeouts(total_s=0.1))
