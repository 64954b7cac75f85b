"""Tests of the place of a failure in a server's log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import Row
from nemo_gym.viewer import logs
from nemo_gym.viewer.logs import log_of_failure
from tests.viewer.rollout_rows import failed, row

SERVER = "counter"


class Run:
    """The files of a run with one failed rollout."""

    def __init__(self, folder: Path) -> None:
        self.files = RunFiles(results=folder / "x.jsonl")
        self.files.logs.mkdir(parents=True)

    def write(self, text: str, server: str = SERVER) -> Path:
        path = self.files.logs / f"{server}.log"
        path.write_text(text)
        return path

    def log(self, *given: Path, **fields: Any) -> Any:
        record = failed(row(4, 1), **{"_ng_failure_server": SERVER, **fields})
        return log_of_failure(Row(record), self.files, given)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def lines(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


def marked(log: Any) -> list[str]:
    return [log["lines"][at] for at in log["marked"]]


def test_line_with_the_rollout_id_is_marked(run: Run):
    run.write(f"{lines(100)}WARNING /verify failed (rollout 4-1): boom\n{lines(100)}")
    log = run.log()
    assert marked(log) == ["WARNING /verify failed (rollout 4-1): boom"]
    assert (log["server"], log["first_line"], len(log["lines"])) == (SERVER, 81, 41)
    assert log["lines"][0] == "line 81"


@pytest.mark.parametrize("other", ["rollout 14-1", "rollout 4-1-a1", "rollout 4-10", "2024-1"])
def test_other_rollouts_are_not_marked(run: Run, other: str):
    run.write(f"(rollout 4-1) of an earlier start\n({other}) failed\n")
    assert marked(run.log()) == ["(rollout 4-1) of an earlier start"]


def test_message_is_found_without_an_id(run: Run):
    run.write(f"{lines(5)}ValueError: the account 'x' is closed\n{lines(5)}")
    message = f"{SERVER}: ValueError: the account 'x' is closed"
    assert marked(run.log(_ng_failure_message=message)) == ["ValueError: the account 'x' is closed"]


def test_tracebacks_are_shown_to_their_end(run: Run):
    frames = "".join(f'  File "{number}.py", line {number}\n    call()\n' for number in range(30))
    first = f"Traceback (most recent call last):\n{frames}KeyError: 'x'\n"
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    last = f"Traceback (most recent call last):\n{frames}ValueError: two lines\n  of message\n"
    run.write(f"{lines(9)}(rollout 4-1) failed\n{first}{between}{last}{lines(300)}")
    assert run.log()["lines"][-2:] == ["ValueError: two lines", "  of message"]
    endless = "Traceback (most recent call last):\n" + "  again\n" * 1000
    run.write(f"(rollout 4-1) failed\n{endless}")
    assert len(run.log()["lines"]) == logs.MOST_LINES
    run.write("(rollout 4-1) failed\nTraceback (most recent call last):\n  torn")
    assert run.log()["lines"][-1] == "  torn"


def test_long_messages_are_searched_in_part(run: Run, monkeypatch: pytest.MonkeyPatch):
    searched: list[object] = []
    monkeypatch.setattr(logs, "_last_match", lambda file, needle, *_: searched.append(needle))
    run.write(lines(3))
    run.write(lines(3), server="an_agent")
    message = lines(100_000, "no line of the log")
    run.log(_ng_failure_message=message, _ng_failure_log=str(run.files.logs / f"{SERVER}.log"))
    assert len(searched) == 2 * logs.MOST_NEEDLES


def test_agents_log_is_searched_next(run: Run):
    run.write(lines(3))
    run.write("/run failed (rollout 4-1)\n", server="an_agent")
    log = run.log()
    assert (log["server"], marked(log)) == ("an_agent", ["/run failed (rollout 4-1)"])


def test_last_lines_are_shown_otherwise(run: Run):
    run.write(lines(100))
    log = run.log()
    assert (log["lines"][-1], log["marked"], log["first_line"]) == ("line 100", [], 81)


def test_small_files_are_shown_whole(run: Run):
    run.write("(rollout 4-1) failed")
    assert run.log()["lines"] == ["(rollout 4-1) failed"]
    run.write("")
    assert run.log() is None


def test_moved_runs_have_their_logs(run: Run):
    run.write("(rollout 4-1)\n", server="renamed")
    log = run.log(_ng_failure_log="/elsewhere/x_run/logs/renamed.log")
    assert log["path"] == str(run.files.logs / "renamed.log")


def test_logs_of_earlier_versions_are_shown(run: Run):
    run.files.folder.rename(run.files.folder.with_name("moved"))
    earlier = run.files.results.with_name("x_logs")
    earlier.mkdir()
    (earlier / f"{SERVER}.log").write_text("(rollout 4-1)\n")
    assert run.log()["path"] == str(earlier / f"{SERVER}.log")
    # A new session writes to the new folder, and failures recorded before it name the earlier one.
    run.files.logs.mkdir(parents=True)
    run.write(lines(3))
    assert run.log()["path"] == str(run.files.logs / f"{SERVER}.log")
    assert run.log(_ng_failure_log=str(earlier / f"{SERVER}.log"))["path"] == str(earlier / f"{SERVER}.log")


def test_other_files_are_never_read(run: Run, tmp_path_factory: pytest.TempPathFactory):
    outside = tmp_path_factory.mktemp("outside") / "secret.log"
    outside.write_text("(rollout 4-1) secret\n")
    assert run.log(_ng_failure_log=str(outside)) is None
    (run.files.logs / f"{SERVER}.log").symlink_to(outside)
    assert run.log() is None
    assert run.log(_ng_failure_server=f"../../{outside.parent.name}/secret") is None
    assert marked(run.log(outside.parent, _ng_failure_log=str(outside))) == ["(rollout 4-1) secret"]


def test_linked_folders_are_never_read(run: Run, tmp_path_factory: pytest.TempPathFactory):
    outside = tmp_path_factory.mktemp("outside")
    for log in (outside / f"{SERVER}.log", outside / "logs" / f"{SERVER}.log"):
        log.parent.mkdir(exist_ok=True)
        log.write_text("(rollout 4-1) secret\n")
    run.files.logs.rmdir()
    run.files.logs.symlink_to(outside)
    assert run.log() is None
    run.files.logs.unlink()
    run.files.folder.rmdir()
    run.files.folder.symlink_to(outside)
    assert run.log() is None
    run.files.folder.unlink()
    run.files.results.with_name("x_logs").symlink_to(outside)
    assert run.log() is None


def test_pipes_are_not_opened(run: Run):
    os.mkfifo(run.files.logs / f"{SERVER}.log")
    assert run.log() is None


def test_large_logs_are_read_in_part(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(logs, "SEARCHED_BYTES", 20_000)
    monkeypatch.setattr(logs, "COUNTED_BYTES", 10_000)
    early, late = "(rollout 4-1) early\n", "(rollout 4-1) late\n"
    run.write(early + lines(5_000) + late + lines(1_000))
    log = run.log()
    assert (marked(log), log["first_line"]) == (["(rollout 4-1) late"], None)
    run.write(early + lines(5_000))
    assert run.log()["marked"] == []


def test_id_across_two_parts_is_found(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "CHUNK_BYTES", 4_000)
    for shift in range(0, 40, 3):
        run.write(f"{'a' * 3000}\n(rollout 4-1) failed\n{'b' * (3998 - shift)}\n")
        assert marked(run.log()) == ["(rollout 4-1) failed"]


def test_long_lines_and_colours_are_cut(run: Run):
    run.write(f"{'x' * 1_000_000}\n\x1b[31m(rollout 4-1)\x1b[0m \x07failed{'y' * 1_000_000}\n{'z' * 1_000_000}\n")
    log = run.log()
    assert sum(map(len, log["lines"])) < 10_000
    assert marked(log)[0].startswith("(rollout 4-1) failedyyy")
    assert (log["first_line"], log["marked"]) == (2, [0])
