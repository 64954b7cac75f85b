"""Call errors that can be caught as aiohttp errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import aiohttp
import pytest

from nemo_gym import BaseServerConfig, EndpointError, NeMoGymAsyncOpenAI, ServerClient, raise_for_status
from nemo_gym.errors import ServerCallError
from nemo_gym.global_config import DictConfig
from nemo_gym.http.external import external_session
from nemo_gym.http.raising import as_expected
from nemo_gym.http.reply import NotConnected, Reply, ServerReplied, Timeouts
from tests.http.faulty_server import FaultyServer


def client_of(host: str, port: int) -> ServerClient:
    block = {"resources_servers": {"x": {"host": host, "port": port}}}
    head = BaseServerConfig(host="127.0.0.1", port=1)
    return ServerClient(head_server_config=head, global_config_dict=DictConfig({"faulty": block}))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/close-before", aiohttp.ServerDisconnectedError),
        ("/close-in-body/10", aiohttp.ClientPayloadError),
        ("/silent", asyncio.TimeoutError),
        ("/silent", aiohttp.ServerTimeoutError),
    ],
)
async def test_call_without_reply_is_an_aiohttp_error(path, kind):
    with FaultyServer() as server:
        client = client_of(server.host, server.port)
        timeouts = Timeouts(total_s=0.3) if path == "/silent" else Timeouts()
        with pytest.raises(kind, match=r"^server 'faulty': POST http://127\.0\.0\.1:\d+/") as raised:
            await client.post("faulty", path, json={}, timeouts=timeouts)
        assert isinstance(raised.value, aiohttp.ClientError)
        assert isinstance(raised.value, ServerCallError)
        assert raised.value.was_sent
        await client.aclose()


@pytest.mark.parametrize("limit", [0.2, aiohttp.ClientTimeout(total=0.2), aiohttp.ClientTimeout(sock_read=0.2)])
async def test_aiohttp_timeouts_limit_a_call(limit):
    with FaultyServer() as server:
        client = client_of(server.host, server.port)
        # With an open connection, only the reply can be late.
        assert (await client.post("faulty", "/echo", json={}, timeout=aiohttp.ClientTimeout())).ok
        with pytest.raises(TimeoutError, match=r"0\.2 s"):
            await client.post("faulty", "/silent", timeout=limit)
        assert (await client.post("faulty", "/echo", json={}, timeout=aiohttp.ClientTimeout())).ok
        await client.aclose()


def test_failed_connection_is_an_aiohttp_error():
    error = NotConnected("connection refused")
    known = as_expected(error)
    assert isinstance(known, aiohttp.ClientConnectorError)
    assert (str(known), repr(known)) == (str(error), repr(error))
    assert known.was_sent is False


@pytest.mark.parametrize("raises", [raise_for_status, lambda reply: asyncio.to_thread(reply.raise_for_status)])
async def test_error_status_raises_an_aiohttp_error(raises):
    reply = Reply(418, [(b"X-Pot", b"tea")], b"short and stout", "POST", "http://127.0.0.1:1/brew")
    with pytest.raises(aiohttp.ClientResponseError, match="short and stout") as raised:
        await raises(reply)
    error = raised.value
    assert isinstance(error, ServerReplied)
    assert (error.status, error.message, error.headers["x-pot"]) == (418, "I'm a Teapot", "tea")
    assert (error.request_info.method, error.request_info.real_url, error.history) == ("POST", reply.url, ())
    assert error.response_content == b"short and stout"


async def test_endpoint_error_has_its_status_and_body(endpoint):
    model = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/nowhere", api_key="k", tries=1)
    with pytest.raises(aiohttp.ClientResponseError, match="answered 404") as raised:
        await model.create_chat_completion(messages=[])
    assert (raised.value.status, bool(raised.value.response_content)) == (404, True)
    gone = NeMoGymAsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", tries=1)
    with pytest.raises(aiohttp.ClientConnectionError) as raised:
        await gone.create_models()
    assert isinstance(raised.value, EndpointError)
    await external_session().aclose()


@pytest.mark.parametrize(
    ("imported", "printed"),
    [
        ("nemo_gym.server_utils", "True False"),
        ("aiohttp", "True True"),
        ("aiohttp, nemo_gym.server_utils", "False True"),
    ],
)
def test_only_folders_that_can_catch_aiohttp_errors_get_them(imported, printed):
    program = (
        f"import sys, {imported}; from nemo_gym.http.reply import Reply, ServerReplied\n"
        "try: Reply(500, [], b'', 'GET', '/').raise_for_status()\n"
        "except ServerReplied as error: print(type(error) is ServerReplied, 'aiohttp' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == printed
