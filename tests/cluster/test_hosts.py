"""Hosts in network namespaces: separate addresses and loopbacks, cables that can be cut, and no leftovers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import PATIENCE_S, Dialled, Host, connected_hosts

pytestmark = pytest.mark.slow

PREFIX = "ngrt"
SERVER = """
import http.server, socket
class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6
Server(("::", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
CALL = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
started_at = time.monotonic()
assert opener.open(sys.argv[1], timeout=float(sys.argv[2])).status == 200
print(time.monotonic() - started_at)
"""
CRASH = f"""
import os, signal
from tests.cluster.hosts import connected_hosts
with connected_hosts(1, {PREFIX!r}) as [host]:
    host.popen("sleep", "1000", stdout=-3, stderr=-3)
    print(host.namespace, host.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with connected_hosts(2, PREFIX) as connected:
        yield connected


@pytest.fixture
def server(hosts: list[Host]) -> Iterator[Host]:
    """Yield the second host, with a server on all its addresses."""
    host = hosts[1]
    host.popen(sys.executable, "-c", SERVER, stderr=subprocess.DEVNULL)
    _until(lambda: 8000 in host.listening())
    yield host
    host.kill()


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _call(host: Host, address: str, timeout_s: float = PATIENCE_S) -> float | None:
    """Return the seconds that a request takes; None if it fails."""
    done = host.run(sys.executable, "-c", CALL, f"http://{address}:8000/", str(timeout_s), check=False)
    return float(done.stdout) if done.returncode == 0 else None


def test_hosts_reach_each_other_by_name_and_address(hosts, server):
    for address in (server.ip, server.name, f"[{server.ipv6}]"):
        assert _call(hosts[0], address) is not None


def test_loopback_is_not_shared(hosts, server):
    assert _call(server, "127.0.0.1") is not None
    assert _call(hosts[0], "127.0.0.1") is None


def test_every_opened_connection_is_noted(hosts, server):
    _call(hosts[0], server.ip)
    _call(hosts[0], "127.0.0.1")
    assert hosts[0].dialled() >= {Dialled(server.ip, 8000), Dialled("127.0.0.1", 8000)}
    assert Dialled("127.0.0.1", 8000).is_loopback


def test_a_cut_cable_separates_until_it_is_mended(hosts, server):
    server.cut()
    assert _call(hosts[0], server.ip, 0.5) is None
    server.mend()
    _until(lambda: _call(hosts[0], server.ip) is not None)


def test_a_slow_host_answers_late(hosts, server):
    server.slow(delay_ms=60, loss_percent=1)
    try:
        # The handshake and the request: two round trips.
        assert (_call(hosts[0], server.ip) or 0.0) >= 0.24
    finally:
        server.fast()
    _until(lambda: (_call(hosts[0], server.ip) or 1.0) < 0.12)


def test_programs_see_their_hosts_name_and_folder(hosts):
    program = "import os, socket, tempfile; print(socket.gethostname(), os.getcwd(), tempfile.gettempdir())"
    [name, folder, temporary] = hosts[0].run(sys.executable, "-c", program).stdout.split()
    assert name == "node1"
    assert Path(folder) == hosts[0].folder
    assert Path(temporary).is_relative_to(folder)


def test_killing_a_host_ends_its_processes(hosts):
    shell = hosts[0].popen("sh", "-c", "sleep 1000 & sleep 1000")
    _until(lambda: len(hosts[0].pids()) == 3)
    hosts[0].kill()
    assert shell.returncode == -9
    assert hosts[0].pids() == []


def test_the_leftovers_of_a_killed_process_are_removed():
    died = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    namespace, folder = died.stdout.split()
    assert Path("/run/netns", namespace).exists()
    with connected_hosts(1, PREFIX) as [host]:
        assert host.pids() == []
    assert not Path("/run/netns", namespace).exists()
    assert not Path(folder).exists()
    left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert namespace not in left
