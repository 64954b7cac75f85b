"""A server with as many connections as it has descriptors stays alive, and recovers by itself."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sysconfig
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER

pytestmark = pytest.mark.slow

SCRIPTS = Path(sysconfig.get_path("scripts"))
OPEN_FILES = 256
PATIENCE_S = 100.0
START = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))
os.execv(sys.argv[1], sys.argv[1:])
"""


def connection_to(url):
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)


def answer(connection, path):
    connection.request("GET", path)
    reply = connection.getresponse()
    reply.read()
    return reply


@pytest.fixture
def crowded(workplace):
    """The process id and the address of a server that may open few files."""
    script = workplace.write("start.py", START)
    command = workplace.start(
        "python", str(script), str(SCRIPTS / "ng_run"), "+head_server.port=0", workplace.environment()
    )
    command.wait_for("head server: ")
    plain = command.servers["plain"]
    yield plain["pid"], plain["url"]
    assert command.end().code == 0


def test_silent_connections_do_not_fill_a_server(crowded):
    _, url = crowded
    regular = connection_to(url)
    assert answer(regular, "/tools").status == 200
    with ExitStack() as stack:
        for _ in range(2 * OPEN_FILES):
            silent = stack.enter_context(socket.socket())
            silent.setblocking(False)
            silent.connect_ex((urlsplit(url).hostname, urlsplit(url).port))
        for _ in range(20):
            assert answer(connection_to(url), "/livez").status == 200
        assert answer(regular, "/tools").status == 200
        late = answer(connection_to(url), "/tools")
        assert late.status == 200 or (late.status, late.headers[NOT_BEGUN_HEADER]) == (503, "1")
        deadline = time.monotonic() + PATIENCE_S
        while answer(connection_to(url), "/tools").status != 200:
            assert time.monotonic() < deadline, "the silent connections were not closed"
            time.sleep(0.1)


def test_burst_of_connections_is_answered(crowded):
    pid, url = crowded
    with ExitStack() as stack:
        # All connections wait in the server's backlog, so it finds them at once.
        os.kill(pid, signal.SIGSTOP)
        callers = [stack.enter_context(socket.socket()) for _ in range(3 * OPEN_FILES)]
        for caller in callers:
            caller.settimeout(PATIENCE_S)
            caller.connect((urlsplit(url).hostname, urlsplit(url).port))
            caller.send(b"GET /tools HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        os.kill(pid, signal.SIGCONT)
        answers = [caller.recv(1000) for caller in callers]
    rejected = [each for each in answers if not each.startswith(b"HTTP/1.1 200 ")]
    assert all(each.startswith(b"HTTP/1.1 503 ") and NOT_BEGUN_HEADER.encode() in each for each in rejected)
