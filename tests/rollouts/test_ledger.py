"""The events of a ledger: written, read and followed."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import (
    EVENTS,
    Control,
    End,
    Ended,
    Event,
    Note,
    Planned,
    Scan,
    Session,
    Task,
    as_json,
    events_of,
    follow,
    lines_of,
    of_json,
    read,
)
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.usage import Tokens
from nemo_gym.schemas.row import TaskKey

pytestmark = pytest.mark.bare

SESSION = Session(1.5, "f00d", 7, "host", ["ng", "eval"], {"python": "3.11"}, {"limit": 3}, {"models": ["m"]}, "p")
FAILED = Ended(
    3.5, 1, 0, 0, Outcome.FAILED, agent="a", cause="lost", message="gone", is_final=True, seconds=0.5,
    file="failures", offset=0, bytes=9, digest="0a",
)  # fmt: skip
SCORED = Ended(
    4.5, 1, 0, 1, Outcome.SCORED, agent="a", reward=0.25, usage={"m": Tokens(3, 1, 4)}, cost=0.1, seconds=1.5,
    phases={"model": 1.0}, file="results", offset=10, bytes=20, digest="0b",
)  # fmt: skip
DISCARDED = Ended(5.5, 2, 0, 0, Outcome.UNRESOLVED)
ONE_OF_EACH = {
    "session": SESSION,
    "task": Task(1, 0, 0, 9, "0c"),
    "planned": Planned(2.5, 4, 3, False, 100, 200),
    "ended": SCORED,
    "scan": Scan(6.5, "results"),
    "control": Control(7.5, "cancel", {"task": 3}, {"running": 1}),
    "note": Note(8.5, {"step": 3}),
    "end": End(9.5, "stopped", "no server", 50, {"results": (30, 40)}),
}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


def add(output: Path, *events: Event | bytes) -> None:
    """Append events, or raw bytes, to the ledger of an output."""
    files = RunFiles(results=output)
    files.folder.mkdir(exist_ok=True)
    with files.ledger.open("ab") as ledger:
        for event in events:
            ledger.write(event if isinstance(event, bytes) else dump_line(as_json(event)))


def plain(event: object) -> object:
    """Return an event without the difference between lists and tuples, which JSON does not have."""
    return orjson.loads(dump_line(as_json(event)))  # type: ignore[arg-type]


def test_every_kind_is_read_as_it_was_written() -> None:
    assert ONE_OF_EACH.keys() == EVENTS.keys()
    for name, event in {**ONE_OF_EACH, "failed": FAILED, "discarded": DISCARDED}.items():
        again = of_json(orjson.loads(dump_line(as_json(event))))
        assert type(again) is type(event), name
        assert again is not None
        assert plain(again) == plain(event), name
    assert of_json(orjson.loads(dump_line(as_json(SCORED)))) == SCORED


def test_defaults_are_left_out() -> None:
    assert as_json(DISCARDED) == {
        "event": "ended", "at": 5.5, "task": 2, "repeat": 0, "attempt": 0, "outcome": "unresolved",
    }  # fmt: skip


def test_kinds_and_fields_of_later_versions_are_skipped(output: Path) -> None:
    add(
        output,
        b'{"event":"dreamt","at":1.0}\n',
        b'{"event":"control","at":1.0,"verb":"pause","arguments":{},"answer":{},"mood":"good"}\n',
    )
    assert list(events_of(output)) == [Control(1.0, "pause", {}, {})]


def test_incomplete_last_line_is_read_once_complete(output: Path) -> None:
    line = dump_line(as_json(SCORED))
    add(output, SESSION, line[:30])
    assert list(events_of(output)) == [SESSION]
    add(output, line[30:])
    assert list(events_of(output)) == [SESSION, SCORED]
    ledger = RunFiles(results=output).ledger
    second = len(dump_line(as_json(SESSION)))
    assert [each.offset for each in lines_of(ledger)] == [0, second]
    assert [each.fields["event"] for each in lines_of(ledger, second)] == ["ended"]


def test_missing_or_damaged_ledger_is_an_error(output: Path) -> None:
    with pytest.raises(DataError, match=r"x_run/ledger\.jsonl: the run has no ledger"):
        read(output)
    for damage in (b"\0\0\n", b'{"event":"control"}\n', b'{"event":"ended","outcome":"lucky"}\n'):
        RunFiles(results=output).ledger.unlink(missing_ok=True)
        add(output, Control(1.0, "pause", {}, {}), damage)
        with pytest.raises(DataError, match=r"ledger\.jsonl:2: the line is invalid"):
            read(output)


def test_follower_gets_each_event_once(output: Path) -> None:
    add(output, SESSION)
    found: list[Event] = []

    def is_over() -> bool:
        # The events before the last look are read after it.
        if len(found) == 1:
            add(output, FAILED)
        elif len(found) == 2:
            add(output, SCORED, ONE_OF_EACH["end"])
            return True
        return False

    for event in follow(output, until=is_over):
        found.append(event)
    assert [type(event).__name__ for event in found] == ["Session", "Ended", "Ended", "End"]


def test_counts_add_up_after_every_event(output: Path) -> None:
    tasks = [Task(number, 0, 0, 9, "0c") for number in range(4)]
    failed_again = FAILED._replace(task=3, cause="timeout")
    planned = Planned(1.5, 4, 4, False, 36, 1)
    add(output, SESSION, Scan(1.0, "materialized_inputs"), *tasks)
    assert (read(output).planned, read(output).unresolved) == (0, 0)
    add(output, planned, FAILED, SCORED, DISCARDED, failed_again)
    run = read(output)
    assert (run.planned, len(run.scored), run.failed, run.unresolved) == (4, 1, {"timeout": 1}, 2)
    assert run.mean_reward == 0.25
    assert run.usage.tokens == Tokens(3, 1, 4)
    assert run.discarded.keys() == {TaskKey(2, 0)}
    assert run.end is None
    add(output, ONE_OF_EACH["end"], ONE_OF_EACH["control"])
    run = read(str(output))
    assert run.end is not None
    assert run.end.reason == "no server"
    assert [each.verb for each in run.controls] == ["cancel"]


def test_scan_voids_the_events_of_its_file(output: Path) -> None:
    planned = Planned(1.5, 1, 1, False, 9, 1)
    add(output, SESSION, Task(1, 0, 0, 9, "0c"), planned, FAILED, SCORED, Scan(5.0, "results"))
    run = read(output)
    assert (len(run.scored), run.failed) == (0, {"lost": 1})
    add(output, Scan(6.0, "failures"), SCORED)
    run = read(output)
    assert (len(run.scored), run.failed, run.unresolved) == (1, {}, 0)
    add(output, Scan(7.0, "materialized_inputs"), Task(1, 0, 0, 9, "0c"), Task(1, 1, 9, 9, "0d"))
    # The earlier list is valid until the new one is complete.
    assert (read(output).planned, read(output).unresolved) == (1, 0)
    add(output, planned._replace(rollouts=2))
    assert (read(output).planned, read(output).unresolved) == (2, 1)


def test_new_session_has_not_ended(output: Path) -> None:
    add(output, SESSION, ONE_OF_EACH["end"], SESSION)
    run = read(output)
    assert run.end is None
    assert len(run.sessions) == 2
