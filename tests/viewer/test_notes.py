"""Tests of notes on rollouts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.errors import DataError
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.notes import Notes
from tests.viewer.rollout_rows import run_record

KEY = TaskKey(3, 1)
WRITER = """
import sys
from pathlib import Path
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.notes import Notes
notes = Notes(Path(sys.argv[1]))
for task in range(100):
    notes.write(TaskKey(task, int(sys.argv[2])), star=True, tags=[], comment="x" * 2000)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "x_notes.jsonl")


def write(notes: Notes, key: TaskKey = KEY, **fields: Any):
    return notes.write(key, **{"star": False, "tags": [], "comment": "", **fields})


def test_last_note_of_a_rollout_counts(notes: Notes):
    write(notes, star=True, tags=["odd", "odd"])
    write(notes, TaskKey(0, 0), comment="other")
    last = write(notes, comment=" why? ")
    assert notes.of(KEY) == last
    assert (last.star, last.tags, last.comment) == (False, (), "why?")
    assert notes.all().keys() == {KEY, TaskKey(0, 0)}


def test_empty_note_removes_the_earlier_one(notes: Notes):
    write(notes, star=True)
    write(notes)
    assert notes.all() == {}


def test_notes_of_another_viewer_appear(notes: Notes):
    assert notes.all() == {}
    written = write(Notes(notes.path), tags=["a"])
    assert notes.of(KEY) == written


def test_two_viewers_lose_nothing(notes: Notes):
    words = [sys.executable, "-c", WRITER, str(notes.path)]
    writers = [subprocess.Popen([*words, str(number)]) for number in range(3)]
    assert [writer.wait(timeout=100) for writer in writers] == [0, 0, 0]
    assert len(notes.all()) == 300
    assert notes.problems() == []


def test_torn_and_foreign_lines_are_reported(notes: Notes):
    write(notes, star=True)
    with notes.path.open("ab") as file:
        file.write(b'{"a": 1}\nnot JSON\n{"task": 1, "rep')
    assert [each["line"] for each in notes.problems()] == [2, 3, 4]
    write(notes, TaskKey(9, 0), comment="later")
    assert notes.all().keys() == {KEY, TaskKey(9, 0)}


def test_notes_survive_a_resume(notes: Notes):
    record = notes.path.with_name("x_run.json")
    record.write_bytes(run_record(started_at="2020-01-01T00:00:00+00:00"))
    write(notes, star=True)
    earlier = orjson.loads(record.read_bytes())
    record.write_bytes(run_record(started_at="2099-01-01T00:00:00+00:00", earlier_sessions=[earlier]))
    assert notes.all().keys() == {KEY}


def test_notes_of_replaced_rollouts_do_not_count(notes: Notes):
    write(notes, star=True)
    notes.path.with_name("x_run.json").write_bytes(run_record(started_at="2099-01-01T00:00:00+00:00"))
    assert notes.all() == {}
    assert len(notes.path.read_bytes().splitlines()) == 1


@pytest.mark.parametrize("place", [lambda path: path.mkdir(), lambda path: path.symlink_to(path.parent / "victim")])
def test_unwritable_file_is_named(notes: Notes, place: Callable[[Path], object]):
    place(notes.path)
    with pytest.raises(DataError, match=r"x_notes\.jsonl: the note cannot be written"):
        write(notes, star=True)
    assert not notes.path.with_name("victim").exists()
    assert notes.all() == {}
