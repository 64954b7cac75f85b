"""Lines that show that a slow download or script is still at work."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nemo_gym.data import activity
from nemo_gym.data.script_process import run_script
from nemo_gym.data.scripts import Script
from tests.data.fake_hub import FakeHub
from tests.data.test_download import CONTENT, content_of

SLOW = """
import threading
from pathlib import Path

from nemo_gym.data import activity


def prepare(output: Path) -> Path:
    assert activity.TEST_LINE.wait(60)
    return output
"""


class Lines(list[str]):
    """The lines shown, and an event that the first one sets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = threading.Event()

    def warning(self, form: str, text: str) -> None:
        self.append(form % text)
        self.first.set()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    monkeypatch.setattr(activity, "logger", found)
    monkeypatch.setattr(activity, "EVERY_S", 0.001)
    monkeypatch.setattr(activity, "TEST_LINE", found.first, raising=False)
    return found


def test_slow_script_is_reported_while_it_runs(lines: Lines, tmp_path: Path) -> None:
    program = tmp_path / "prepare.py"
    program.write_text(SLOW)
    assert run_script(Script(program, tmp_path / "log"), {"output": tmp_path}) == tmp_path
    assert lines[0] == f"{program} is still running (0 s)"


def test_download_reports_its_size(
    lines: Lines, fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "EVERY_S", 0.0)
    fake_hub.file("https://example.org/a.bin", CONTENT * 100)
    content_of(fake_hub, tmp_path / "a.bin")
    assert lines[-1] == f"{fake_hub.url}/example.org/a.bin: 0.8 of 0.8 MB"


def test_recent_line_makes_another_superfluous(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "EVERY_S", 3600.0)
    activity.seen()
    activity.show("too early")
    assert lines == []


class Clock:
    """A clock that only tests move."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_only_long_work_is_shown(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(activity, "EVERY_S", 10.0)
    monkeypatch.setattr(activity, "time", clock)
    monkeypatch.setattr(activity, "_ACTIVITY", activity._Activity())

    def download(at_s: int) -> None:
        clock.now = at_s
        activity.began()
        activity.show(f"at {at_s} s")

    for at_s in range(25):
        download(at_s)
    download(100)
    assert lines == ["at 10 s", "at 20 s"]
