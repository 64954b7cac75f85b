"""Resumed runs whose files were edited, cut, moved or restored: they are repaired, or the changed lines are named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError
from nemo_gym.jsonl import Appender
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.ledger import read
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.tasks import TaskPlan
from tests.each_case import each_case
from tests.rollouts.ledger_agreement import compared, expect_agreement

SCORED = 6
FINISHED, KILLED, KILLED_IN_A_ROW = "finished", "killed", "killed before the event of the last row"
STATES = (FINISHED, KILLED, KILLED_IN_A_ROW)
Lines = list[bytes]
Edit = Callable[[Lines], Lines]


class EarlierRun:
    """A run with scored, failed and discarded rollouts, whose files can be edited and restored."""

    def __init__(self, files: RunFiles, saved: Path) -> None:
        self.files = files
        self._folder, self._saved = files.results.parent, saved
        shutil.copytree(self._folder, saved)

    def restore(self, state: str = FINISHED) -> None:
        """Restore all files with their times, and remove the events that a killed session would lack."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        if state != FINISHED:
            self.edit("ledger", lambda lines: lines[:-1])
        if state == KILLED_IN_A_ROW:
            self.edit("ledger", lambda lines: without(lines, last_result(lines)))

    def edit(self, name: str, edit: Edit) -> None:
        path = getattr(self.files, name)
        path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


@pytest.fixture
async def earlier(run_tasks, make_task, tmp_path):
    rows = [
        *(make_task(n) for n in range(5)),
        make_task(5, act="fail_until", until=1, failure_class="lost"),
        make_task(6, act="crash"),
        make_task(7, act="discard_second"),
    ]
    run = await run_tasks(rows, max_attempts=30)
    return EarlierRun(run.files, tmp_path / "saved")


@pytest.fixture
def resume(run_again):
    """Return a function that resumes the run and checks its files."""

    async def run(**settings):
        again = await run_again(max_attempts=30, **settings)
        found = expect_agreement(again.files.results)
        assert (found.planned, found.scored, found.unresolved) == (8, SCORED, 0)
        summary = again.summary
        assert (summary.planned, summary.scored, summary.failed) == (8, SCORED, found.failed.total())
        return again

    return run


def without(lines: Lines, at: int) -> Lines:
    return [line for number, line in enumerate(lines) if number != at]


def first(lines: Lines, kind: str) -> int:
    return next(at for at, line in enumerate(lines) if line.startswith(b'{"event":"%b"' % kind.encode()))


def last_result(lines: Lines) -> int:
    return max(at for at, line in enumerate(lines) if line.startswith(b'{"event":"ended","file":"results"'))


def regraded(line: bytes) -> bytes:
    return line.replace(b'"reward":1.0', b'"reward":0.5')


def with_newline(newline: bytes) -> Edit:
    return lambda lines: [line.rstrip() + newline for line in lines]


def with_mark(lines: Lines) -> Lines:
    return [b"\xef\xbb\xbf" + lines[0], *lines[1:]]


def with_blank_lines(lines: Lines) -> Lines:
    return [*lines[:2], b"\n", *lines[2:], b" \n"]


MOVED = ("reversed", "first line moved to the end")
HARMLESS = {
    "touched": lambda lines: lines,
    "CRLF": with_newline(b"\r\n"),
    "CRLF in one line": lambda lines: [lines[0][:-1] + b"\r\n", *lines[1:]],
    "byte order mark": with_mark,
    "blank lines": with_blank_lines,
    "last newline removed": lambda lines: [*lines[:-1], lines[-1].rstrip()],
    "reversed": lambda lines: lines[::-1],
    "first line moved to the end": lambda lines: [*lines[1:], lines[0]],
}
SHORTER = {
    "first line removed": lambda lines: lines[1:],
    "middle line removed": lambda lines: without(lines, 2),
    "last line removed": lambda lines: lines[:-1],
    "cut within the last line": lambda lines: [*lines[:-1], lines[-1][:50]],
    "null bytes in place of the last line": lambda lines: [*lines[:-1], bytes(len(lines[-1]))],
}
OTHER_LEDGERS = {
    "event of a result removed": lambda lines: without(lines, last_result(lines)),
    "event of a task removed": lambda lines: without(lines, first(lines, "task")),
    "list of the tasks not ended": lambda lines: without(lines, first(lines, "planned")),
    "session removed": lambda lines: without(lines, first(lines, "session")),
    "event doubled": lambda lines: [*lines[:-3], lines[-3], *lines[-3:]],
    "events swapped": lambda lines: [*lines[:-3], lines[-2], lines[-3], lines[-1]],
    "tasks listed again, but not to the end": lambda lines: [*lines, *lines[: first(lines, "task") + 1]],
    "all lines removed": lambda lines: [],
    "reversed": lambda lines: lines[::-1],
    "CRLF": with_newline(b"\r\n"),
}


@each_case("state", STATES)
async def test_harmless_edits_are_accepted(earlier, resume, state):
    for name in ("results", "failures", "materialized"):
        for what, edit in HARMLESS.items():
            if state == KILLED_IN_A_ROW and name == "results" and what in MOVED:
                # Only the last row may lack its event. Any other one counts as added.
                continue
            earlier.restore(state)
            earlier.edit(name, edit)
            assert (await resume()).summary.kept == SCORED, (name, what)


@each_case("state", STATES)
async def test_removed_rows_run_again(earlier, resume, state):
    for what, edit in SHORTER.items():
        earlier.restore(state)
        earlier.edit("results", edit)
        assert (await resume()).summary.kept == SCORED - 1, what
        earlier.restore(state)
        earlier.edit("failures", edit)
        assert (await resume()).summary.kept == SCORED, what


@each_case("state", [FINISHED, KILLED])
async def test_changed_ledger_is_repaired(earlier, resume, state):
    for what, edit in OTHER_LEDGERS.items():
        if state == KILLED and what == "event of a result removed":
            # Only the recorded end of a session shows that the row was there before.
            continue
        earlier.restore(state)
        earlier.edit("ledger", edit)
        assert (await resume()).summary.kept == SCORED, what


@pytest.mark.slow
async def test_ledger_may_end_at_any_byte(earlier, resume):
    *_, third_last, second_last, last = earlier.files.ledger.read_bytes().splitlines(keepends=True)
    size = earlier.files.ledger.stat().st_size
    for length in range(size - len(third_last + second_last + last), size + 1):
        earlier.restore()
        os.truncate(earlier.files.ledger, length)
        assert (await resume()).summary.kept == SCORED, length


@each_case("garbage", [
    b"garbage\n", b"[]\n", b"{}\n", b"1\n", b"\n", b"\0\0\0\n", b'{"event": "ended"}\n',
    b'{"event":"ended","file":"results"}\n', b'{"event":"ended","file":"failures","task":\n', b'{"event":"session"\n',
    b'{"event":"planned"}\n',
])  # fmt: skip
async def test_invalid_line_of_a_ledger_is_named(earlier, resume, garbage):
    for replaced in (-1, -3):
        earlier.restore()
        lines = earlier.files.ledger.read_bytes().splitlines(keepends=True)
        lines[replaced] = garbage
        earlier.edit("ledger", lambda _: lines)  # noqa: B023
        named = rf"ledger\.jsonl:{len(lines) + replaced + 1}: the line is invalid \(.*delete it: --resume makes"
        with pytest.raises(DataError, match=named):
            await resume()
    with pytest.raises(DataError, match="the line is invalid"):
        read(earlier.files.results)
    earlier.files.ledger.unlink()
    await resume()


def at_line(number: int) -> str:
    return rf"out\.jsonl:{number}: added or changed since the run wrote the file\. .*--resume=force"


def of_task(line: bytes, task: int) -> bytes:
    return json.dumps({**json.loads(line), "_ng_task_index": task}).encode() + b"\n"


EDITED_RESULTS = {
    "first line changed": (lambda lines: [regraded(lines[0]), *lines[1:]], at_line(1)),
    "middle line changed": (lambda lines: [*lines[:2], regraded(lines[2]), *lines[3:]], at_line(3)),
    "last line changed": (lambda lines: [*lines[:-1], regraded(lines[-1])], at_line(SCORED)),
    "line added": (lambda lines: [*lines[:2], of_task(lines[0], 6), *lines[2:]], at_line(3)),
    "line doubled": (lambda lines: [*lines[:2], lines[1], *lines[2:]], at_line(3)),
    "line doubled at the end": (lambda lines: [*lines, lines[1]], at_line(SCORED + 1)),
    "rollout scored again": (lambda lines: [*lines, regraded(lines[-1])], at_line(SCORED + 1)),
    "no JSON": (lambda lines: [*lines, b"zzz\n"], rf"out\.jsonl:{SCORED + 1}:1: not valid JSON"),
    "no object": (lambda lines: [*lines, b"[1]\n"], rf"out\.jsonl:{SCORED + 1}: expected a JSON object"),
    "no rollout": (lambda lines: [*lines, b"{}\n"], rf"out\.jsonl:{SCORED + 1}: '_ng_task_index' is missing"),
    "null bytes": (
        lambda lines: [*lines[:2], bytes(9) + b"\n", *lines[3:]],
        r"out\.jsonl:3: not valid JSON, .*sed -i",
    ),
}


@each_case("state", STATES)
async def test_edited_line_of_the_results_is_named(earlier, resume, state):
    for what, (edit, message) in EDITED_RESULTS.items():
        if state == KILLED_IN_A_ROW and what == "last line changed":
            # Only an event could show that the line was changed.
            continue
        earlier.restore(state)
        earlier.edit("results", edit)
        before = earlier.files.results.read_bytes()
        with pytest.raises(DataError, match=message):
            await resume()
        assert earlier.files.results.read_bytes() == before, what


async def test_line_added_to_results_of_a_finished_run_is_named(earlier, resume):
    earlier.edit("results", lambda lines: [*lines, of_task(lines[0], 6)])
    with pytest.raises(DataError, match=at_line(SCORED + 1)):
        await resume()


async def test_doubled_line_counts_once_if_forced(earlier, run_again):
    earlier.edit("results", lambda lines: [*lines, lines[0]])
    subject = RunSubject(config_hash="0")
    for is_forced in ("force", True):
        summary = (await run_again(max_attempts=30, subject=subject, resume_from_cache=is_forced)).summary
        assert (summary.planned, summary.scored, summary.failed, summary.unresolved) == (8, SCORED, 2, 0)


async def test_edit_with_the_same_size_and_time_is_not_noticed(earlier, run_again):
    """A finished run is not read again if the sizes and times of its files are those that its end recorded.

    This is intended, because reading all rows takes minutes in a large run. Editors and copies change the time.
    """
    known = earlier.files.results.stat()
    earlier.edit("results", lambda lines: [regraded(lines[0]), *lines[1:]])
    os.utime(earlier.files.results, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert (await run_again(max_attempts=30)).summary.kept == SCORED
    digest, reward = compared(earlier.files.results).problems
    assert digest.startswith("results:1: digest is")
    assert reward == "results:1: reward is 1.0, but 0.5 in the row"


@each_case(("edit", "message"), [
    (lambda lines: [*lines, b"zzz\n"], r"failures\.jsonl:4:1: not valid JSON"),
    (lambda lines: [*lines, b"{}\n"], r"failures\.jsonl:4: '_ng_task_index' is missing"),
])  # fmt: skip
async def test_invalid_line_of_the_failures_is_named(earlier, resume, edit, message):
    earlier.restore()
    earlier.edit("failures", edit)
    with pytest.raises(DataError, match=message):
        await resume()


@each_case(("edit", "message"), [
    (lambda lines: [*lines, b"zzz\n"], r"inputs\.jsonl:9:1: not valid JSON"),
    (lambda lines: [*lines, b"{}\n"], r"inputs\.jsonl:9: '_ng_task_index' is missing"),
    (lambda lines: [*lines, lines[6]], r"inputs\.jsonl: the repeats of task 6 are not complete, or listed twice"),
    (lambda lines: [line.replace(b"task 2", b"task X") for line in lines], r"another responses_create_params\.input"),
])  # fmt: skip
async def test_edited_line_of_the_tasks_is_named(earlier, resume, edit, message):
    earlier.restore()
    earlier.edit("materialized", edit)
    with pytest.raises(DataError, match=message):
        await resume()


async def test_lost_repeat_of_a_task_is_named(run_tasks, run_again, make_task):
    run = await run_tasks([make_task(0, act="crash")], num_repeats=3, max_attempts=9)
    lines = run.files.materialized.read_bytes().splitlines(keepends=True)
    run.files.materialized.write_bytes(b"".join(without(lines, 1)))
    with pytest.raises(DataError, match=r"inputs\.jsonl: the repeats of task 0 are not complete, or listed twice"):
        await run_again(num_repeats=3, max_attempts=9)
    run.files.materialized.write_bytes(b"".join(lines[:2]))
    assert (await run_again(num_repeats=3, max_attempts=9)).summary.planned == 3


async def test_copied_run_is_resumed(earlier, resume, tmp_path):
    # Like `cp -r`, this does not copy the times.
    shutil.copytree(earlier.files.results.parent, tmp_path / "copy", copy_function=shutil.copyfile)
    assert (await resume(output_jsonl_fpath=tmp_path / "copy" / "out.jsonl")).summary.kept == SCORED


async def test_ledger_of_another_run_is_named(earlier, resume, run_tasks, make_task, tmp_path):
    other = await run_tasks(
        [make_task(n, text="other") for n in range(8)], output_jsonl_fpath=tmp_path / "o" / "o.jsonl"
    )
    ledger = other.files.ledger.read_bytes().splitlines(keepends=True)
    for lines in (ledger, ledger[:-1], ledger[:-3]):
        earlier.restore()
        earlier.edit("ledger", lambda _: lines)  # noqa: B023
        with pytest.raises(DataError, match=r"out\.jsonl:1, .*out\.jsonl:5 and 1 more line: added or changed"):
            await resume()


async def test_older_results_are_resumed(earlier, resume):
    for name in ("results", "failures"):
        for kept in range(SCORED):
            earlier.restore()
            earlier.edit(name, lambda lines: lines[:kept])  # noqa: B023
            assert (await resume()).summary.kept == (kept if name == "results" else SCORED)


async def test_results_newer_than_the_ledger_are_named(run_tasks, run_again, make_task):
    rows = [make_task(n) for n in range(4)]
    run = await run_tasks(rows[:2])
    older = run.files.ledger.read_bytes()
    await run_again(rows)
    run.files.ledger.write_bytes(older)
    with pytest.raises(DataError, match=r"out\.jsonl:3, \S+out\.jsonl:4: added or changed since"):
        await run_again(rows)


async def test_row_without_event_counts_although_the_session_ended(earlier, run_again, tmp_path):
    settings = CollectionSettings(
        output_jsonl_fpath=earlier.files.results, agent_name="sound", max_attempts=30, resume_from_cache=True
    )
    row = {**json.loads(earlier.files.results.read_bytes().splitlines()[0]), "_ng_task_index": 6}
    plan = TaskPlan(tmp_path / "tasks.jsonl", settings, ["sound"])
    with open_run(plan, earlier.files), Appender(earlier.files.results) as results:
        results.write(row)
    assert (await run_again(max_attempts=30)).summary.kept == SCORED + 1
    assert expect_agreement(earlier.files.results).scored == SCORED + 1
