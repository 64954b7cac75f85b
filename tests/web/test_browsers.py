"""Web pages cannot call a server through their visitor's browser."""

from __future__ import annotations

import socket

import httpx
import pytest

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.config.process import HeadSettings
from nemo_gym.process.head import Head
from nemo_gym.process.serve import uvicorn_config
from nemo_gym.servers.base import context_of
from nemo_gym.testing import make_server, on_a_port
from nemo_gym.web.shutdown import answering
from tests.each_case import each_case

ROW = {"responses_create_params": {"input": "hi"}}
ATTACKS = [
    # By DNS rebinding, the name of the page's own site leads to this machine.
    {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    {"host": "evil.example:80"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "0.0.0.0"},
    {"host": "evil.example@127.0.0.1"},
    {"host": "evil.example:80@localhost:9"},
    {"host": "localhost/evil.example"},
    {"host": "localhost?.evil.example"},
    {"host": "localhost#evil.example"},
    {"host": "local\thost"},
    {"host": "localhost:evil.example"},
    {"host": "[::1].evil.example"},
    {"host": "localhost, evil.example"},
    {"origin": "http://evil.example@127.0.0.1"},
    {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "null"},
    {"origin": "http://["},
    {"sec-fetch-site": "cross-site"},
]
OWN = [
    {},
    {"host": "localhost"},
    {"host": "LOCALHOST.:9"},
    {"host": "app.localhost:9"},
    {"host": "127.0.0.1:9"},
    {"host": "[::1]:9"},
    {"host": "gym.internal:9"},
    {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    {"origin": "https://gym.internal", "sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "none"},
]


class Plain(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        self.setup_liveness(app)
        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


@pytest.fixture(scope="module")
def plain():
    server = make_server(Plain, name="plain")
    context_of(server).allowed_hosts = frozenset({"gym.internal"})
    return server


async def statuses(server, headers, *paths):
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        return [(await client.get(path, headers=headers)) for path in paths]


@each_case("headers", ATTACKS)
async def test_a_web_page_is_refused(plain, headers):
    for answer in await statuses(plain, headers, "/tools", "/livez", "/metrics"):
        assert answer.status_code == 403, answer.text
        assert answer.json()["detail"].startswith("plain ")


@each_case("headers", OWN)
async def test_calls_from_this_machine_are_accepted(plain, headers):
    for answer in await statuses(plain, headers, "/tools", "/livez"):
        assert answer.status_code == 200, answer.text


async def test_the_head_server_refuses_web_pages():
    hosts = frozenset({"gym.internal"})
    settings = HeadSettings(host="127.0.0.1", port=0, instances=[], config_yaml="a: 1\n", allowed_hosts=hosts)
    app = Head(settings).app()
    listener = socket.create_server(("127.0.0.1", 0))
    async with answering(uvicorn_config(app), listener), httpx.AsyncClient(verify=False) as client:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/server_instances"
        for headers, status in ((ATTACKS[0], 403), (ATTACKS[4], 403), ({"host": "gym.internal"}, 200), ({}, 200)):
            assert (await client.get(url, headers=headers)).status_code == status, headers


async def test_public_server_accepts_any_host_name():
    server = make_server(Plain, name="plain", host="0.0.0.0")
    for headers, status in (({"host": "node-17.cluster"}, 200), ({"origin": "http://evil.example"}, 403)):
        (answer,) = await statuses(server, headers, "/tools")
        assert answer.status_code == status, headers


async def test_in_process_client_may_use_any_host_name(plain):
    app = plain.setup_webserver()
    plain.setup_call_layer(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver") as client:
        assert (await client.get("/tools")).status_code == 200
