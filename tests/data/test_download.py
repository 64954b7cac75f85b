"""Downloads from servers that are busy or break off, and to full disks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.data import download
from nemo_gym.data.download import downloaded
from nemo_gym.data.gitlab import Project
from nemo_gym.data.sources import Url, fetch_to
from nemo_gym.http.retries import Backoff
from tests.data.fake_hub import FakeHub

CONTENT = b"content " * 1000
QUICKLY = Backoff(first_s=0.01, factor=1, longest_s=2.0)


def content_of(hub: FakeHub, path: Path) -> bytes:
    url = f"{hub.url}/example.org/a.bin"
    with downloaded(url, path, headers={}, advice={}, otherwise="Check the network.", backoff=QUICKLY) as got:
        assert got.size == got.partial.stat().st_size
        return got.partial.read_bytes()


@pytest.fixture
def hub(fake_hub: FakeHub) -> FakeHub:
    fake_hub.file("https://example.org/a.bin", CONTENT)
    return fake_hub


def test_busy_or_broken_server_is_asked_again(hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub.fail("a.bin", 429, retry_after="0.3")
    hub.fail("a.bin", 503)
    hub.break_off("a.bin")
    began_at = time.monotonic()
    assert content_of(hub, tmp_path / "a.bin") == CONTENT
    assert time.monotonic() - began_at >= 0.3
    assert len(hub.requests) == 4
    assert "answered 429 (Too Many Requests); trying again in" in caplog.text
    assert "the download was interrupted" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_retries_end_with_advice(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("a.bin", *[502] * 5)
    with pytest.raises(DataError, match=r"answered 502 \(Bad Gateway\) \(5 tries\)\. Try again later\. Check the"):
        content_of(hub, tmp_path / "a.bin")
    assert list(tmp_path.iterdir()) == []


def test_long_pause_is_not_waited_for(hub: FakeHub, tmp_path: Path) -> None:
    hub.fail("a.bin", 429, retry_after="3600")
    with pytest.raises(DataError, match=r"and asks for a pause of 3600 s\. Try again later\."):
        content_of(hub, tmp_path / "a.bin")
    assert len(hub.requests) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full exists on Linux only")
def test_full_disk_is_reported(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / f".a.bin.{os.getpid()}.partial").symlink_to("/dev/full")
    with pytest.raises(DataError, match="the download cannot be saved here \\(No space left on device\\)"):
        content_of(hub, tmp_path / "a.bin")


def test_time_limit_is_checked_at_each_part(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LONGEST_S", 0.0)
    # Half a kilobyte arrives, and nothing after it.
    hub.break_off("a.bin", times=5)
    with pytest.raises(DataError, match="the download took longer than 0 h"):
        content_of(hub, tmp_path / "a.bin")
    assert len(hub.requests) == 1


class Redirecting(BaseHTTPRequestHandler):
    """Redirects `/here` to `/file`, and `/away` to `/file` of the other server."""

    server: RedirectingServer

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        target = {"here": "/file", "away": f"{self.server.other}/file"}.get(name)
        self.server.tokens.append((name, self.headers.get("private-token")))
        self.send_response(302 if target else 200)
        if target:
            self.send_header("location", target)
        self.send_header("content-length", "0" if target else str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(b"" if target else CONTENT)

    def log_message(self, format: str, *words: object) -> None:
        pass


class RedirectingServer(ThreadingHTTPServer):
    other: str
    tokens: list[tuple[str, str | None]]


@pytest.fixture
def servers() -> Iterator[tuple[RedirectingServer, RedirectingServer]]:
    """Two servers that redirect to each other."""
    one, two = (RedirectingServer(("127.0.0.1", 0), Redirecting) for _ in range(2))
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,)) for each in (one, two)]
    for server, other in ((one, two), (two, one)):
        server.other, server.tokens = f"http://127.0.0.1:{other.server_port}", []
    for thread in threads:
        thread.start()
    yield one, two
    for server, thread in zip((one, two), threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def fetch_as_dataset(project: Project, name: str, path: Path) -> None:
    fetch_to(Url(project.file("sums", "1", name)), path, headers=project.headers)


def download_from_project(project: Project, name: str, path: Path) -> None:
    project.download("sums", "1", name, path)


@pytest.mark.parametrize("get", [fetch_as_dataset, download_from_project])
def test_redirect_takes_no_token_elsewhere(
    servers: tuple[RedirectingServer, RedirectingServer],
    tmp_path: Path,
    get: Callable[[Project, str, Path], None],
) -> None:
    one, two = servers
    project = Project(two.other, "secret")
    for name in ("here", "away"):
        get(project, name, tmp_path / name)
        assert (tmp_path / name).read_bytes() == CONTENT
    assert one.tokens == [("here", "secret"), ("file", "secret"), ("away", "secret")]
    assert two.tokens == [("file", None)]
