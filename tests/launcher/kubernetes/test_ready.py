"""The wait of a collector's pod ends when the run is ready, or says what is missing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytestmark = pytest.mark.slow


class Head(BaseHTTPRequestHandler):
    """A head server that is ready when it is asked for the second time."""

    asked = 0
    missing = b'{"status": "waiting", "missing": {"mcqa": "not started yet on any machine"}}'

    def do_GET(self) -> None:
        type(self).asked += 1
        assert self.path == "/readyz"
        self.send_response(200 if self.asked > 1 else 503)
        self.end_headers()
        self.wfile.write(b"{}" if self.asked > 1 else self.missing)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def head() -> Iterator[str]:
    Head.asked = 0
    with HTTPServer(("127.0.0.1", 0), Head) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def wait(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nemo_gym.launcher.kubernetes.ready", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_wait_ends_when_all_servers_answer(head):
    done = wait(head, "60")
    assert done.returncode == 0
    assert done.stderr == f"waiting for the run at {head}: mcqa: not started yet on any machine\n"


def test_wait_names_missing_servers_after_the_timeout(head):
    done = wait(head, "0")
    assert done.returncode == 1
    expected = f"The run at {head} was not ready after 0 s: mcqa: not started yet on any machine."
    assert done.stderr.startswith(expected)


def test_wait_without_head_server_is_bounded():
    done = wait("http://127.0.0.1:1", "0.5")
    assert done.returncode == 1
    assert "the head server does not answer" in done.stderr


@pytest.mark.parametrize("words", [(), ("http://head:11000", "soon")])
def test_wrong_use_of_wait_is_explained(words):
    done = wait(*words)
    assert done.returncode == 2
    assert done.stderr == "usage: python -m nemo_gym.launcher.kubernetes.ready URL SECONDS\n"
