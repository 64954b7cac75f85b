"""The progress of a run over time, from its record."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.run_record import RunRecord, Session
from nemo_gym.rollouts.timeline import Point
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.overview import overview_of
from nemo_gym.viewer.progress import recorded_progress
from tests.viewer.index_rows import scored, write

NOTHING: JsonObject = {"at_s": [], "finished": [], "in_flight": []}
FIRST = [Point(0.0, 0, 2), Point(5.0, 3, 2)]
SECOND = [Point(0.0, 3, 1), Point(4.5, 5, 0)]


def session(started_at: str, progress: list[Point]) -> JsonObject:
    outcomes = {"planned": 5, "scored": 5, "kept": 0, "failed": {}, "unresolved": 0, "repeated_attempts": 0}
    return {
        "state": "finished", "started_at": started_at, "command": [], "pid": 1, "host": "h", "versions": {},
        "outcomes": outcomes, "progress": progress,
    }  # fmt: skip


def record(latest: list[Point], *earlier: list[Point]) -> RunRecord:
    """Return the record of a run whose sessions began a minute apart."""
    sessions = [session(f"2026-01-01T00:0{at}:00Z", points) for at, points in enumerate((*earlier, latest))]
    return RunRecord(
        **sessions[-1],
        earlier_sessions=[Session(**each) for each in sessions[:-1]],
        input={"path": "t", "sha256": "", "bytes": 0},
        settings={},
    )


def test_sessions_follow_each_other() -> None:
    assert recorded_progress(record(SECOND, FIRST)) == {
        "at_s": [0.0, 5.0, 60.0, 64.5], "finished": [0, 3, 3, 5], "in_flight": [2, 2, 1, 0],
    }  # fmt: skip


def test_records_without_progress_are_skipped() -> None:
    assert recorded_progress(record([])) is None
    found = recorded_progress(record(SECOND, []))
    assert found is not None
    assert found["at_s"] == [0.0, 4.5]


def test_impossible_times_are_skipped() -> None:
    points = [
        Point(0.0, 0, 1),
        Point(float("nan"), 1, 1),
        Point(-3.0, 1, 1),
        Point(2.0, 2, 0),
        Point(float("inf"), 3, 0),
    ]
    found = recorded_progress(record(points))
    assert found is not None
    assert found["at_s"] == [0.0, 2.0]


def test_many_sessions_are_thinned() -> None:
    sessions = [[Point(at / 10, 300 * number + at, 1) for at in range(300)] for number in range(3)]
    found = recorded_progress(record(*sessions))
    assert found is not None
    assert 200 <= len(found["at_s"]) <= 300
    assert (found["at_s"][0], found["at_s"][-1]) == (0.0, 149.9)


def test_recorded_progress_is_of_all_rollouts(tmp_path: Path) -> None:
    results = write(tmp_path / "x.jsonl", *(scored(task) for task in range(5)))
    results.with_name("x_run.json").write_text(record(FIRST).model_dump_json())
    library = Library([results], tmp_path / "cache")
    library.finish()
    (run,) = library.runs()
    whole, filtered = overview_of(run, Filter()), overview_of(run, Filter(task=(1,)))
    library.close()
    assert whole["progress"] == {"at_s": [0.0, 5.0], "finished": [0, 3], "in_flight": [2, 2]}
    assert filtered["progress"] == NOTHING
