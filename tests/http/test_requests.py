"""Calls with aiohttp to addresses that a server knows itself, on connections that close with the server."""

from __future__ import annotations

import socket
import threading

import aiohttp
import pytest
from fastapi.testclient import TestClient
from pydantic import Field

from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer, raise_for_status
from nemo_gym.http.external import external_session
from nemo_gym.published.requests import get_global_aiohttp_client, request
from nemo_gym.testing import make_server


async def test_json_is_sent_and_response_is_unread(endpoint, seen):
    body = {"model": "m", "messages": [{"role": "user", "content": "h\u00e9"}], 1: 2}
    reply = await request("POST", f"{endpoint}/v1/chat/completions", json=body, headers={"X-Mine": "yes"})
    assert isinstance(reply, aiohttp.ClientResponse)
    assert (await reply.json())["object"] == "chat.completion"
    (asked,) = seen()
    assert asked["body"] == {**{key: value for key, value in body.items() if key != 1}, "1": 2}
    assert (asked["headers"]["content-type"], asked["headers"]["x-mine"]) == ("application/json", "yes")
    await external_session().aclose()


async def test_error_status_is_raised_with_the_body(endpoint):
    reply = await request("GET", f"{endpoint}/nowhere")
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await raise_for_status(reply)
    assert (raised.value.status, bool(raised.value.response_content)) == (404, True)
    await external_session().aclose()


async def test_only_refused_connections_are_retried():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(aiohttp.ClientConnectorError):
            await request("POST", url, json={"a": 1})

    arrived = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            connection, _ = listener.accept()
            with connection:
                arrived.append(connection.recv(65536))

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(aiohttp.ClientError):
            await request("POST", f"http://127.0.0.1:{listener.getsockname()[1]}/", json={"a": 1})
        thread.join()
    assert len(arrived) == 1
    await external_session().aclose()


class Asking(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    opened: list = Field(default_factory=list)

    async def startup(self) -> None:
        self.opened.append(get_global_aiohttp_client())

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


def test_connections_close_with_the_server():
    server = make_server(Asking, name="asking", entrypoint="app.py", domain="other")
    with TestClient(server.setup_webserver()):
        (session,) = server.opened
        assert not session.closed
    assert session.closed
