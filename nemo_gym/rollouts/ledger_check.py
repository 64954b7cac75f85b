"""Bring the ledger of an earlier run into agreement with the files that hold its rows, before the run is resumed.

A killed process leaves at most its last row without an event. A crash of the machine can lose the end of any file.
Users remove rows in order to run them again, and copy runs without their ledger.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator, Set
from contextlib import closing
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, RawLine, Written, cut_torn_line, line_digest, parse_row, read_lines_at
from nemo_gym.rollouts.job import FileName, RunFiles
from nemo_gym.rollouts.ledger import (
    End,
    LedgerLine,
    Planned,
    Scan,
    Session,
    ended_in,
    event_of,
    events_in,
    fields_of,
    invalid,
    last_line,
    start_of,
)
from nemo_gym.rollouts.ledger_writer import LedgerWriter, ended_of, place, stats_of
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.resume import KeySet
from nemo_gym.rollouts.usage import tokens_of
from nemo_gym.schemas.row import ATTEMPT_INDEX_KEY, Row, TaskKey, key_of
from nemo_gym.text import counted

LINES_NAMED = 5
OUTCOMES: dict[FileName, Outcome] = {"results": Outcome.SCORED, "failures": Outcome.FAILED}
"""The files with ended rollouts, and the outcome of the rows in them."""


class LastEvents(NamedTuple):
    """What a ledger says about the latest session."""

    has_ended: bool
    """Whether the session recorded its end. Otherwise, it was killed."""
    unchanged: Set[str] = frozenset()
    """The files with rows that have not changed since then."""
    has_same_ledger: bool = False
    """Whether the ledger has not changed since then."""


def agree(files: RunFiles, *, accepts_all: bool = False) -> None:
    """Bring the ledger into agreement with the results and the failures. Cut off incomplete last lines of all files.

    Rows that the run wrote without an event get one, and events whose row is gone become void. If the results contain
    rows that the run did not write, raise a `DataError` that names them, unless `accepts_all` is set. A run without a
    ledger, as of an earlier version, gets one, and all its rows are accepted. They are also accepted if only the
    ledger was edited.
    """
    for path in (*files.with_rows.values(), files.ungraded, files.ledger):
        cut_torn_line(path)
    is_new = not files.ledger.exists()
    last = _last_events(files)
    if last.has_same_ledger and last.unchanged == files.with_rows.keys():
        return
    known = {name: _known(files.ledger, name) for name in OUTCOMES}
    found = {name: _compare(files.with_rows[name], known[name]) for name in OUTCOMES}
    if not (is_new or accepts_all or "results" in last.unchanged):
        _check(files, found["results"], was_killed=not last.has_ended)
    with closing(LedgerWriter(files)) as ledger:
        for name, difference in found.items():
            _repair(ledger, files, name, difference, known[name])
        ledger.sync()


def _last_events(files: RunFiles) -> LastEvents:
    last = last_line(files.ledger, start_of(End))
    if last is None or last.offset + len(last.raw) < files.ledger.stat().st_size:
        return LastEvents(has_ended=False)
    event, now = event_of(files.ledger, last), stats_of(files)
    assert isinstance(event, End)
    unchanged = {name for name in files.with_rows if event.files.get(name) == now.get(name)}
    return LastEvents(has_ended=True, unchanged=unchanged, has_same_ledger=event.offset == last.offset)


class KnownPlan(NamedTuple):
    """The plan of the latest session."""

    digest: str | None = None
    """The digest of all that the tasks depend on; None if it is unknown."""
    planned: Planned | None = None
    """The counts of the planned rollouts; None if the ledger does not list those of the materialized inputs."""

    @classmethod
    def read(cls, files: RunFiles) -> KnownPlan:
        found = last_line(files.ledger, start_of(Session))
        session = None if found is None else event_of(files.ledger, found)
        return cls(session.plan if isinstance(session, Session) else None, _planned(files))


def _planned(files: RunFiles) -> Planned | None:
    ended = start_of(Planned)
    scan, end = last_line(files.ledger, start_of(Scan, "materialized_inputs")), last_line(files.ledger, ended)
    if scan is None or end is None or end.offset < scan.offset:
        # The session was killed before it had listed all tasks.
        return None
    planned, known = event_of(files.ledger, end), files.materialized.stat()
    assert isinstance(planned, Planned)
    if (planned.bytes, planned.mtime_ns) != (known.st_size, known.st_mtime_ns):
        return None
    with files.ledger.open("rb") as lines:
        lines.seek(scan.offset)
        # Only the tasks are between the two events.
        between = takewhile(lambda line: not line.startswith(ended), lines)
        return planned if planned.rollouts == sum(1 for _ in between) - 1 else None


@dataclass
class _Known:
    """The rows of one file that the ledger names, in order. A row takes 24 bytes."""

    offsets: array[int] = field(default_factory=lambda: array("Q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))
    events: array[int] = field(default_factory=lambda: array("Q"))
    """The offsets of the events in the ledger."""


def _known(ledger: Path, name: FileName) -> _Known:
    known = _Known()
    for line in ended_in(ledger, name):
        event = fields_of(ledger, line)
        try:
            known.offsets.append(event["offset"])
            known.digests.append(int(event["digest"], 16))
        except (ValueError, TypeError, OverflowError) as error:
            raise invalid(ledger, line, error) from error
        known.events.append(line.offset)
    return known


class _Line(NamedTuple):
    number: int
    offset: int


class _Difference(NamedTuple):
    """How a file differs from what the ledger says about it."""

    added: list[_Line]
    """The lines without an event."""
    last_known: int
    """The number of the last line with an event; 0 if there is none."""
    has_lost_last: bool
    """Whether the line of the last event is gone."""
    is_only_longer: bool
    """Whether the file only has further lines after those with events."""


def _lines(path: Path) -> Iterator[tuple[int, RawLine]]:
    return read_lines_at(path) if path.exists() else iter(())


def _compare(path: Path, known: _Known) -> _Difference:
    added: list[_Line] = []
    same, last_known, expected = 0, 0, len(known.offsets)
    rest: dict[int, int] | None = None
    for offset, line in _lines(path):
        digest = _digest_of(line.raw)
        if rest is None:
            if same < expected and known.digests[same] == digest and known.offsets[same] == offset:
                same, last_known = same + 1, line.number
                continue
            # From here on, find lines by their digests, because the lines may have moved.
            rest = {each: number for number, each in enumerate(known.digests[same:], start=same)}
        if rest.pop(digest, None) is None:
            added.append(_Line(line.number, offset))
        else:
            last_known = line.number
    lost = range(same, expected) if rest is None else rest.values()
    return _Difference(added, last_known, expected - 1 in lost, is_only_longer=same == expected)


def _digest_of(line: bytes) -> int:
    return int.from_bytes(line_digest(line), "big")


def _check(files: RunFiles, difference: _Difference, *, was_killed: bool) -> None:
    """Raise `DataError` if the results contain rows that the run did not write."""
    path, changed = files.results, difference.added
    if was_killed and not difference.has_lost_last:
        # A killed session may have written its last rows without events.
        last = [line for line in changed if line.number > difference.last_known]
        changed = [line for line in changed if line.number <= difference.last_known] + _scored_before(files, last)
    if changed:
        # If a line is no rollout at all, say so.
        for line, raw in _raw_lines_at(path, changed[:1]):
            _ended_in(path, "results", line, raw)
        others = f" and {counted(len(changed) - LINES_NAMED, 'more line')}" if len(changed) > LINES_NAMED else ""
        raise DataError(
            f"{', '.join(f'{path}:{line.number}' for line in changed[:LINES_NAMED])}{others}: added or "
            "changed since the run wrote the file. Restore the file, add --resume=force to "
            "accept all its lines, add --overwrite to start over, or choose another output."
        )


def _scored_before(files: RunFiles, lines: list[_Line]) -> list[_Line]:
    """Return those of the lines without an event whose rollout has a score already."""
    if not lines:
        return []
    known = KeySet(TaskKey(event["task"], event["repeat"]) for event in events_in(files.ledger, "results"))
    seen, found = set[TaskKey](), []
    for line, raw in _raw_lines_at(files.results, lines):
        event = _ended_in(files.results, "results", line, raw)
        key = TaskKey(event["task"], event["repeat"])
        if key in known or key in seen:
            found.append(line)
        seen.add(key)
    return found


def _repair(ledger: LedgerWriter, files: RunFiles, name: FileName, difference: _Difference, known: _Known) -> None:
    path = files.with_rows[name]
    if difference.is_only_longer:
        for line, raw in _raw_lines_at(path, difference.added):
            ledger.add_json(_ended_in(path, name, line, raw))
        return
    ledger.add(Scan(time.time(), name))
    events = dict(zip(known.digests, known.events, strict=True))
    with files.ledger.open("rb") as written:
        for offset, (number, raw) in _lines(path):
            at = events.get(_digest_of(raw))
            if at is None:
                ledger.add_json(_ended_in(path, name, _Line(number, offset), raw))
                continue
            written.seek(at)
            ledger.add_json(place(LedgerLine(at, written.readline()).fields, name, Written(offset, raw)))


def _raw_lines_at(path: Path, lines: list[_Line]) -> Iterator[tuple[_Line, bytes]]:
    if not lines:
        return
    with path.open("rb") as file:
        for line in lines:
            file.seek(line.offset)
            yield line, file.readline().rstrip()


def _ended_in(path: Path, name: FileName, line: _Line, raw: bytes) -> JsonObject:
    row = Row(parse_row(raw, path, line.number))
    key_of(row, path, line.number)
    try:
        event = ended_of(row, OUTCOMES[name], tokens_of(row), at=os.stat(path).st_mtime)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path}:{line.number}: {ATTEMPT_INDEX_KEY} must be an integer. Correct or remove the line, or choose "
            "another output."
        ) from error
    return place(event, name, Written(line.offset, raw))
