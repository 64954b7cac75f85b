"""The head server returns addresses that its callers can use."""

from __future__ import annotations

import http.client
import json
import re
import socket
from dataclasses import replace
from typing import Any

import pytest
import yaml

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import BaseServerConfig

pytestmark = pytest.mark.slow


def listens(host: str) -> bool:
    try:
        with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module", params=["0.0.0.0", pytest.param("::", marks=pytest.mark.slow)])
def everywhere(request, shared_workplace):
    """Start a run that listens on all addresses. Return the port of its head server, and the address of the test."""
    if not listens(request.param):
        pytest.skip(f"this machine cannot listen on {request.param}")
    config = shared_workplace.environment("plain")
    hosts = (f"+default_host='{request.param}'", f"+head_server.host='{request.param}'")
    command = shared_workplace.start_servers(config, *hosts, "+run_token=false")
    port = re.search(r"head server: http://\S+:(\d+) ", command.wait_for("head server: "))
    assert port is not None
    yield int(port.group(1)), "::1" if request.param == "::" else "127.0.0.1"
    assert command.end().code == 0


def answer(address: str, port: int, path: str, host: str | None = None) -> Any:
    connection = http.client.HTTPConnection(address, port, timeout=100)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def hosts_of(address: str, port: int, host: str | None = None) -> set[str]:
    """Return every host that the head server returns for itself and its server."""
    (instance,) = answer(address, port, "/server_instances", host)
    shown = instance["host"]
    assert instance["url"] == f"http://{f'[{shown}]' if ':' in shown else shown}:{instance['port']}"
    config = yaml.safe_load(answer(address, port, "/global_config_dict_yaml", host))
    return {shown, config["head_server"]["host"], config["plain"]["resources_servers"]["plain"]["host"]}


def test_head_returns_the_host_that_was_called(everywhere, node_address):
    port, own = everywhere
    written = f"[{own}]" if ":" in own else own
    cases = [
        (own, None, own),
        ("127.0.0.1", None, "127.0.0.1"),
        (own, f"{written}:{port}", own),
        (own, f"gym.internal:{port}", "gym.internal"),
        (own, f"0.0.0.0:{port}", own),
        (own, f"[::]:{port}", own),
        (own, "[", own),
        ("127.0.0.1", "", "127.0.0.1"),
        *([(node_address, None, node_address)] if node_address else []),
    ]
    found = [(address, host, hosts_of(address, port, host)) for address, host, _ in cases]
    assert found == [(address, host, {expected}) for address, host, expected in cases]


async def test_client_calls_servers_at_the_heads_address(everywhere):
    port, own = everywhere
    here = ServerClient.load_from_global_config(BaseServerConfig(host=own, port=port))
    # As on another machine, which does not have the unix sockets.
    client = ServerClient(
        head_server_config=here.head_server_config,
        global_config_dict=here.global_config_dict,
        address_book=replace(here.address_book, shortcuts={}),
    )
    assert client.address_of("plain").host == own
    assert (await client.get("plain", "/tools")).ok
    await client.aclose()


def test_commands_find_a_run_that_listens_everywhere(everywhere, shared_workplace):
    status = shared_workplace.run("ng_status", f"+head_server.port={everywhere[0]}")
    assert (status.code, "plain" in status.out) == (0, True), status.err
