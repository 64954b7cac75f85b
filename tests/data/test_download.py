"""Downloads from servers that are busy or break off, and to full disks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.data.download import downloaded
from nemo_gym.http.backoff import Backoff
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
    assert "the download broke off" in caplog.text
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
    with pytest.raises(DataError, match="the file cannot be written \\(No space left on device\\)"):
        content_of(hub, tmp_path / "a.bin")
