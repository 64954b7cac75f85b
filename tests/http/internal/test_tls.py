"""Requests over TLS: what is verified, and that a connection behaves as a plain one does."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.errors import ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import BrokenReply, HungUp, NotConnected, NotTrusted, Timeouts
from nemo_gym.http.tls import reason_of, speaks_tls
from nemo_gym.web.shutdown import answering
from tests.certificates import Authority
from tests.http.internal.asking import on_both_loops

pytestmark = pytest.mark.bare

HOST = "127.0.0.1"
LARGE = 8 * 1024 * 1024


class Echo:
    """An app that returns the body, and counts connections by the callers' ports."""

    def __init__(self) -> None:
        self.ports: set[int] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.ports.add(scope["client"][1])
        body, more = b"", scope["path"] != "/at-once"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = [(b"content-length", b"%d" % len(body)), (b"x-scheme", scope["scheme"].encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def echoing(tls: Tls | None, app: Echo | None = None) -> AsyncIterator[int]:
    """Serve the app and yield its port."""
    listener = socket.create_server((HOST, 0))
    # Idle connections stay open, however long the rest of a test takes.
    config = uvicorn.Config(
        app or Echo(), lifespan="off", log_config=None, timeout_graceful_shutdown=1, timeout_keep_alive=600
    )
    async with answering(config, listener, tls):
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    return authority.tls("here", HOST, "localhost")


@on_both_loops
async def test_connection_serves_many_requests(tls):
    app = Echo()
    async with echoing(tls, app) as port, InternalClient(tls=tls) as client:
        for size in (0, 1, 1000, LARGE, 10):
            reply = await client.request("POST", HOST, port, "/", body=b"x" * size)
            assert (reply.status, len(reply.body), reply.headers["x-scheme"]) == (200, size, "https")
        assert len(app.ports) == 1
        assert reply.url == f"https://{HOST}:{port}/"


@on_both_loops
async def test_many_large_requests_at_once(tls):
    # Client and server share one event loop, so on a slow machine the last handshake waits for much encryption.
    async with echoing(tls) as port, InternalClient(tls=tls, timeouts=Timeouts(connect_s=100)) as client:
        bodies = [bytes([number]) * 1_000_000 for number in range(64)]
        replies = await asyncio.gather(*(client.request("POST", HOST, port, "/", body=body) for body in bodies))
        assert [reply.body for reply in replies] == bodies


@on_both_loops
async def test_reply_before_the_body_is_read(tls):
    async with echoing(tls) as port, InternalClient(tls=tls) as client:
        for _ in range(3):
            # The server may also close the connection while the rest of the body is on its way.
            with suppress(HungUp, BrokenReply):
                assert (await client.request("POST", HOST, port, "/at-once", body=b"x" * LARGE)).status == 200
            assert (await client.request("POST", HOST, port, "/", body=b"next")).body == b"next"


@on_both_loops
async def test_closed_connection_is_not_used_again(tls):
    listener = socket.create_server((HOST, 0))
    again = listener.dup()
    config = {"lifespan": "off", "log_config": None, "timeout_graceful_shutdown": 1}
    async with InternalClient(tls=tls) as client:
        for each in (listener, again):
            async with answering(uvicorn.Config(Echo(), **config), each, tls):
                assert (await client.request("GET", HOST, again.getsockname()[1], "/")).status == 200


@on_both_loops
async def test_cancelled_request_leaves_no_connection(tls):
    async with echoing(tls) as port, InternalClient(tls=tls) as client:
        for delay_s in (0, 0.0005, 0.001, 0.002, 0.005, 0.01):
            asking = asyncio.create_task(client.request("POST", HOST, port, "/", body=b"x" * LARGE))
            await asyncio.sleep(delay_s)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert (await client.request("GET", HOST, port, "/")).status == 200
        assert len(next(iter(client._pools.values())).connections) == 1


@pytest.mark.parametrize(
    ("served", "trusted", "problem"),
    [
        (["10.1.2.3"], "own", "it is not valid for '127.0.0.1'. Call the server by a name in the certificate"),
        (["other"], "own", "it is not valid for '127.0.0.1'. Call the server by a name in the certificate"),
        ([HOST], "another", "another.pem issued it. Set tls.ca to the file of its authority"),
        ([HOST], SYSTEM, "no authority that this machine trusts issued it"),
        (None, "own", "the server does not speak TLS, but this caller has tls"),
        ("expired", "own", "it has expired. Renew it on the server's machine"),
    ],
)
async def test_server_is_verified(served, trusted, problem, authority, tmp_path):
    others = {"own": authority.ca, "another": Authority(tmp_path, "another").ca, SYSTEM: SYSTEM}
    caller = Tls(ca=str(others[trusted]))
    names, days = ([HOST], -1) if served == "expired" else (served, 20)
    async with (
        echoing(names and authority.tls("served", *names, days=days)) as port,
        InternalClient(tls=caller) as client,
    ):
        with pytest.raises(NotTrusted, match=re.escape(problem)) as refused:
            await client.request("GET", HOST, port, "/")
        assert not refused.value.was_sent
        with pytest.raises(NotTrusted, match=re.escape(problem)):
            await asyncio.to_thread(ask, "GET", f"https://{HOST}:{port}/", timeout_s=100, tls=caller)
        assert await asyncio.to_thread(speaks_tls, HOST, port) is (served is not None)


async def test_missing_extension_is_explained(tmp_path):
    lax = Authority(tmp_path, is_strict=False)
    # Only Python 3.13 and newer verify in this way by default.
    strict = ssl.create_default_context(cafile=lax.ca)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    async with echoing(lax.tls("served", HOST)) as port:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            await asyncio.open_connection(HOST, port, ssl=strict)
    assert re.search("key usage extension.* require .*keyUsage", reason_of(refused.value, lax.trusted))


@on_both_loops
async def test_plain_caller_gets_no_http_answer(tls):
    async with echoing(tls) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        async with InternalClient() as client:
            with pytest.raises(ServerCallError):
                await client.request("GET", HOST, port, "/")


@on_both_loops
async def test_loopback_is_verified_for_the_machines_own_name(authority):
    tls = authority.tls("node1", "*.gym.internal", "10.1.2.3")
    async with echoing(tls) as port, InternalClient(tls=tls) as client:
        assert (await client.request("GET", HOST, port, "/")).status == 200
        async with InternalClient(tls=authority.trusted) as elsewhere:
            with pytest.raises(NotTrusted):
                await elsewhere.request("GET", HOST, port, "/")


@on_both_loops
async def test_silent_server_is_given_up():
    with socket.create_server((HOST, 0)) as silent:
        async with InternalClient(tls=Tls(ca=SYSTEM), timeouts=Timeouts(connect_s=0.2)) as client:
            with pytest.raises(NotConnected, match=re.escape("no connection within 0.2 s")):
                await client.request("GET", HOST, silent.getsockname()[1], "/")


async def test_renewed_certificate_is_used_at_the_next_handshake(authority):
    tls = authority.tls("renewed", HOST)
    key = Path(str(tls.key))
    before = await asyncio.to_thread(key.read_bytes)
    async with echoing(tls) as port, InternalClient(tls=authority.trusted) as early:
        assert await status_of(early, port) == 200
        await asyncio.to_thread(authority.issue, "renewed", "DNS:elsewhere")
        after = await asyncio.to_thread(key.read_bytes)
        # A certificate whose key has not been replaced yet changes nothing.
        await asyncio.to_thread(key.write_bytes, before)
        async with InternalClient(tls=authority.trusted) as client:
            assert await status_of(client, port) == 200
        await asyncio.to_thread(key.write_bytes, after)
        async with InternalClient(tls=authority.trusted) as client:
            with pytest.raises(NotTrusted, match="not valid for"):
                await status_of(client, port)
        # Open connections go on.
        assert await status_of(early, port) == 200


async def status_of(client: InternalClient, port: int) -> int:
    return (await client.request("GET", HOST, port, "/")).status
