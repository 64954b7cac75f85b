"""Servers with one process are called over unix sockets by other servers on the machine."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import httpx
import pytest

from nemo_gym.calls.client import ServerClient

pytestmark = pytest.mark.slow

# Without certificates, which would take longer to read than the calls.
get, post = partial(httpx.get, verify=False, timeout=100), partial(httpx.post, verify=False, timeout=100)

SERVER = """
from fastapi import Request

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Asked(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/where")(self.where)
        app.post("/ask")(self.ask)
        return app

    async def where(self, request: Request) -> dict:
        return {"server": list(request.scope["server"]), "client": request.client.host, "url": str(request.url)}

    async def ask(self, request: Request) -> dict:
        reply = await self.server_client.post("other", "/where", json={})
        return await reply.json()

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0
"""


@pytest.fixture
def two(workplace):
    """A run of two servers, one of which calls the other."""
    words = [workplace.environment(name, SERVER) for name in ("asking", "other")]
    paths = ",".join(word.removeprefix("+config_paths=[").removesuffix("]") for word in words)
    command = workplace.start_servers(f"+config_paths=[{paths}]")
    yield command
    assert command.end().code == 0


def shortcuts_of(command):
    run = get(f"{command.head}/run").json()["run"]
    return {name: Path(path) for name, path in run["shortcuts"].items()}


def asked(command):
    return post(f"{command.servers['asking']['url']}/ask", json={}).json()


def test_calls_on_one_machine_use_unix_sockets(two):
    shortcuts = shortcuts_of(two)
    assert set(shortcuts) == {"asking", "other"}
    url = two.servers["other"]["url"]
    assert asked(two) == {"server": [str(shortcuts["other"]), None], "client": "127.0.0.1", "url": f"{url}/where"}
    # The address itself works too.
    assert post(f"{url}/where", json={}).json()["server"] == [
        two.servers["other"]["host"],
        two.servers["other"]["port"],
    ]


def test_client_receives_sockets_from_the_head_server(two):
    host, _, port = two.head.removeprefix("http://").partition(":")
    client = ServerClient.load_from_global_config(type("Head", (), {"host": host, "port": int(port)}))
    assert client._caller.shortcuts == {name: str(path) for name, path in shortcuts_of(two).items()}


def test_deleted_socket_falls_back_to_the_address(two):
    (folder,) = {path.parent for path in shortcuts_of(two).values()}
    shutil.rmtree(folder)
    other = two.servers["other"]
    for _ in range(2):
        assert asked(two)["server"] == [other["host"], other["port"]]


def test_sockets_are_removed_with_the_run(workplace):
    command = workplace.start_servers(workplace.environment())
    (folder,) = {path.parent for path in shortcuts_of(command).values()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert command.end().code == 0
    assert not folder.exists()
