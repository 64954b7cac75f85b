"""A run's ledger, `<output>_run/ledger.jsonl`: one line per event, from which all counts of the run are computed.

The rows of the rollouts stay in their files. An event names the file, the offset, the size and the digest of its row.
The file is only appended to, by one process at a time. Readers may follow it while it grows:

    from nemo_gym.rollouts.ledger import read
    run = read("results/x.jsonl")
    print(run.planned, len(run.scored), run.failed, run.unresolved, run.mean_reward)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.job import FileName, RunFiles
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.usage import Tokens, Usage
from nemo_gym.schemas.row import TaskKey

BLOCK_BYTES = 1 << 20
POLL_S = 0.2
"""Seconds between looks at a ledger that is followed."""


class Session(NamedTuple):
    """A process began to work on the run."""

    at: float
    """The time of the event, in seconds since the epoch."""
    run: str
    """The run's id. It stays the same when the run is resumed."""
    pid: int
    host: str
    command: list[str]
    """The command line, with its secrets masked."""
    versions: Mapping[str, str]
    settings: JsonObject
    subject: JsonObject
    """The models and the hash of all servers' settings: what was evaluated."""
    plan: str | None = None
    """A digest of everything that the tasks depend on. If it is unchanged, so are the tasks."""


class Task(NamedTuple):
    """A planned rollout. Its row is in the materialized inputs."""

    task: int
    repeat: int
    offset: int
    bytes: int
    """The size of the row without its newline."""
    digest: str
    is_further: bool = False
    """Whether a trainer has added the rollout, which is then planned at once instead of with a list."""

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.task, self.repeat)


class Planned(NamedTuple):
    """The list of `Task` events is complete. It replaces any earlier list."""

    at: float
    rollouts: int
    tasks: int
    """The number of different tasks. Each may be repeated."""
    has_groups: bool
    """Whether the repeats of a task are verified together."""
    bytes: int
    """The size of the materialized inputs."""
    mtime_ns: int
    """The time of their last change, in ns."""


class Ended(NamedTuple):
    """An attempt at a rollout ended. A failed attempt may be followed by another one."""

    at: float
    task: int
    repeat: int
    attempt: int
    """The number of failed attempts before this one."""
    outcome: Outcome
    agent: str | None = None
    reward: float | None = None
    """The reward of a scored rollout."""
    cause: str | None = None
    """The failure class of a failed attempt."""
    message: str | None = None
    """The first 300 characters of the failure's message."""
    is_final: bool = False
    """Whether a retry of a failed attempt cannot succeed."""
    usage: Mapping[str, Tokens] = {}
    """The tokens by model, as the endpoints reported them: input, cached input and output tokens."""
    cost: float | None = None
    """The cost of the tokens, if the run has a price file."""
    seconds: float | None = None
    """The duration of the attempt."""
    phases: Mapping[str, float] = {}
    """The seconds that the agent waited for each phase: seed, model, tools and verify. Concurrent waits are added."""
    tools: Mapping[str, tuple[int, int]] = {}
    """For each called tool, the number of calls and how many of them failed."""
    file: FileName | None = None
    """The file with the row; None if it was not written, because the verifier discarded the result."""
    offset: int | None = None
    bytes: int | None = None
    """The size of the row without its newline."""
    digest: str | None = None

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.task, self.repeat)


class Scan(NamedTuple):
    """All earlier events with rows in this file are void, for example because a user has changed the file.

    The `Ended` events that follow describe all rows that the file has now. For the planned rollouts, these are `Task`
    events.
    """

    at: float
    file: FileName


class Control(NamedTuple):
    """A request with `ng eval ctl` or in the viewer."""

    at: float
    verb: str
    arguments: JsonObject
    answer: JsonObject


class Note(NamedTuple):
    """A fact that a trainer has added, such as the step or the version of its policy."""

    at: float
    fields: JsonObject


class End(NamedTuple):
    """A session ended. A session without this event was killed."""

    at: float
    state: str
    reason: str | None = None
    offset: int | None = None
    """The offset of this event in the ledger. It reveals a later change of the ledger."""
    files: Mapping[str, tuple[int, int]] = {}
    """The size and the time of the last change (in ns) of each file with rows. They reveal a later change."""


Event = Session | Task | Planned | Ended | Scan | Control | Note | End
EVENTS: Mapping[str, type[Event]] = {
    "session": Session, "task": Task, "planned": Planned, "ended": Ended, "scan": Scan, "control": Control,
    "note": Note, "end": End,
}  # fmt: skip
_NAMES: Mapping[type[Event], str] = {kind: name for name, kind in EVENTS.items()}
_START = b'{"event":"'
"""The start of each line."""
_OF_ROWS = frozenset({"at", "task", "repeat", "attempt", "outcome", "offset", "bytes", "digest"})
"""Fields that the event of each row has."""


def as_json(event: Event) -> JsonObject:
    """Return an event as it is written. Fields with their default values are left out."""
    defaults = event._field_defaults
    written: JsonObject = {"event": _NAMES[type(event)]}
    if (file := getattr(event, "file", None)) is not None:
        # Write the file first, because `ended_in` skips the events of other files without parsing them.
        written["file"] = file
    for name, value in zip(event._fields, event, strict=True):
        if name not in defaults or value != defaults[name]:
            written[name] = value
    if usage := written.get("usage"):
        written["usage"] = {model: list(counts) for model, counts in usage.items()}
    return written


def of_json(fields: JsonObject) -> Event | None:
    """Return the event of a line, or None if a later version of nemo_gym has added its kind."""
    kind = EVENTS.get(fields.get("event", ""))
    if kind is None:
        return None
    known = {name: fields[name] for name in kind._fields if name in fields}
    if kind is Ended:
        known["outcome"] = Outcome(known["outcome"])
        known["usage"] = {model: Tokens(*counts) for model, counts in known.get("usage", {}).items()}
    elif kind is End:
        known["files"] = {name: (size, mtime_ns) for name, (size, mtime_ns) in known.get("files", {}).items()}
    return kind(**known)


def start_of(kind: type[Event], file: FileName | None = None) -> bytes:
    """Return how the lines with events of a kind begin, only those about a file if it is given."""
    start = b'%b%b"' % (_START, _NAMES[kind].encode())
    return start if file is None else b'%b,"file":"%b"' % (start, file.encode())


class LedgerLine(NamedTuple):
    """A complete line of a ledger."""

    offset: int
    raw: bytes
    """The line with its newline."""

    @property
    def fields(self) -> JsonObject:
        return orjson.loads(self.raw)  # type: ignore[no-any-return]


def lines_of(path: Path, offset: int = 0) -> Iterator[LedgerLine]:
    """Yield the complete lines from an offset. A missing file counts as empty."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from _lines_in(file, path, offset)


def _lines_in(file: BinaryIO, path: Path, offset: int) -> Iterator[LedgerLine]:
    file.seek(offset)
    for raw in file:
        if not raw.endswith(b"\n"):
            return
        line = LedgerLine(offset, raw)
        if not raw.startswith(_START):
            raise invalid(path, line, "it is not an event")
        yield line
        offset += len(raw)


def invalid(ledger: Path, line: LedgerLine, problem: object) -> DataError:
    """Return the error for a line that something other than a run has written."""
    with ledger.open("rb") as file:
        number = 1 + file.read(line.offset).count(b"\n")
    return DataError(
        f"{ledger}:{number}: the line is invalid ({problem}). Restore the file, or delete it: --resume makes it again "
        "from the results."
    )


def event_of(ledger: Path, line: LedgerLine) -> Event | None:
    """Return the event of a line, or None as `of_json` does. Raise `DataError` if the line is invalid."""
    try:
        return of_json(line.fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = error if isinstance(error, ValueError) else "its fields are not those of an event"
        raise invalid(ledger, line, problem) from error


def fields_of(ledger: Path, line: LedgerLine) -> JsonObject:
    """Return the fields of the event of a row. Raise `DataError` if the line is invalid."""
    try:
        fields = line.fields
    except orjson.JSONDecodeError as error:
        raise invalid(ledger, line, error) from error
    if not fields.keys() >= _OF_ROWS:
        raise invalid(ledger, line, f"'{min(_OF_ROWS - fields.keys())}' is missing")
    return fields


def last_line(ledger: Path, start: bytes) -> LedgerLine | None:
    """Return the last complete line of a ledger that begins with `start`, or None if there is none."""
    try:
        file = ledger.open("rb")
    except FileNotFoundError:
        return None
    with file:
        # Search in blocks, because a loop over millions of lines takes seconds. The blocks overlap.
        after = file.seek(0, os.SEEK_END)
        while after > 0:
            offset = max(0, after - BLOCK_BYTES)
            file.seek(offset)
            block = (b"" if offset else b"\n") + file.read(after - offset + len(start))
            found = block.rfind(b"\n" + start)
            while found >= 0:
                line_at = offset + found + bool(offset)
                file.seek(line_at)
                if (raw := file.readline()).endswith(b"\n"):
                    return LedgerLine(line_at, raw)
                found = block.rfind(b"\n" + start, 0, found)
            after = offset
    return None


def ended_in(ledger: Path, file: FileName) -> Iterator[LedgerLine]:
    """Yield the `Ended` events of the rows that a file has, in the order of the rows."""
    ended, scan = start_of(Ended, file), last_line(ledger, start_of(Scan, file))
    for line in lines_of(ledger, 0 if scan is None else scan.offset):
        if line.raw.startswith(ended):
            yield line


def events_in(ledger: Path, file: FileName) -> Iterator[JsonObject]:
    """Yield the fields of the events that `ended_in` yields, in a third of the time."""
    ended, scan = start_of(Ended, file), last_line(ledger, start_of(Scan, file))
    # The search takes less time than a loop over the events of other files.
    if last_line(ledger, ended) is None:
        return
    with ledger.open("rb") as lines:
        lines.seek(0 if scan is None else scan.offset)
        try:
            for raw in lines:
                if raw.startswith(ended) and raw.endswith(b"\n"):
                    yield orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise invalid(ledger, LedgerLine(lines.tell() - len(raw), raw), error) from error


def events_of(output: str | PathLike[str]) -> Iterator[Event]:
    """Yield the events of a run so far, given its output. Raise `DataError` if the run has no ledger."""
    yield from follow(output, until=lambda: True)


class LedgerReplaced(DataError):
    """The error for a ledger that a new run has replaced while its events were followed."""


def follow(output: str | PathLike[str], until: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Yield the events of a run, and wait for further ones until `until` returns True.

    Raise `LedgerReplaced` if a new run replaces the ledger.
    """
    path = RunFiles(results=Path(output)).ledger
    if not path.exists():
        raise DataError(f"{path}: the run has no ledger. Check the output's name, or resume the run, which makes one.")
    offset = 0
    # Keep the file open, because its number may be used for another file once it is deleted and closed.
    with path.open("rb") as first:
        while True:
            # Ask before reading, so that the events before the end are read.
            is_over = until()
            # Open the file again, because a network file system shows its growth only then.
            with suppress(FileNotFoundError), path.open("rb") as file:
                is_same = os.path.samestat(os.fstat(file.fileno()), os.fstat(first.fileno()))
                for line in _lines_in(file, path, offset) if is_same else ():
                    offset = line.offset + len(line.raw)
                    if (event := event_of(path, line)) is not None:
                        yield event
                if is_over:
                    return
                if is_same:
                    time.sleep(POLL_S)
                    continue
            raise LedgerReplaced(f"{path}: a new run has replaced the ledger. Read it again.")


@dataclass
class Run:
    """The state of a run after the events that were added: planned = scored + failed + unresolved."""

    sessions: list[Session] = field(default_factory=list)
    end: End | None = None
    """The end of the latest session; None if it is running or was killed."""
    _listed: dict[TaskKey, Task] = field(default_factory=dict)
    """The tasks of a list that is not complete yet."""
    tasks: dict[TaskKey, Task] = field(default_factory=dict)
    """The planned rollouts. A rollout that a resume no longer plans stays listed."""
    scored: dict[TaskKey, Ended] = field(default_factory=dict)
    attempts: dict[TaskKey, list[Ended]] = field(default_factory=dict)
    """The failed attempts of each rollout, even if a later one was scored."""
    discarded: dict[TaskKey, Ended] = field(default_factory=dict)
    """The latest result of each rollout that was not written, because the verifier discarded it."""
    controls: list[Control] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, event: Event) -> None:
        if isinstance(event, Ended):
            if event.outcome is Outcome.SCORED:
                self.scored[event.key] = event
            elif event.outcome is Outcome.FAILED:
                self.attempts.setdefault(event.key, []).append(event)
            else:
                self.discarded[event.key] = event
        elif isinstance(event, Task):
            (self.tasks if event.is_further else self._listed)[event.key] = event
        elif isinstance(event, Planned):
            self.tasks, self._listed = self._listed, {}
        elif isinstance(event, Scan):
            void: dict[FileName, dict[TaskKey, Any]] = {
                "results": self.scored, "failures": self.attempts, "materialized_inputs": self._listed,
            }  # fmt: skip
            void[event.file].clear()
        elif isinstance(event, Session):
            self.sessions.append(event)
            self.end = None
        elif isinstance(event, End):
            self.end = event
        elif isinstance(event, Control):
            self.controls.append(event)
        elif isinstance(event, Note):
            self.notes.append(event)

    @property
    def planned(self) -> int:
        return len(self.tasks)

    @property
    def failed(self) -> Counter[str]:
        """The planned rollouts with failed attempts and without a score, by the cause of the last attempt."""
        found = (self.attempts[key] for key in self.tasks if key in self.attempts and key not in self.scored)
        return Counter(str(attempts[-1].cause) for attempts in found)

    @property
    def unresolved(self) -> int:
        """The planned rollouts that have neither a score nor a failed attempt."""
        return sum(key not in self.scored and key not in self.attempts for key in self.tasks)

    @property
    def mean_reward(self) -> float | None:
        rewards = [each.reward for each in self.scored.values() if each.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def usage(self) -> Usage:
        """The tokens of all rollouts and failed attempts."""
        usage = Usage()
        for ended in (*self.scored.values(), *(each for tried in self.attempts.values() for each in tried)):
            usage.add(ended.usage, is_scored=ended.outcome is Outcome.SCORED)
        return usage


def last_event_at(files: RunFiles) -> datetime | None:
    """Return the time of the last start or end of anything in a run, or None if the run has no ledger."""
    lines = (last_line(files.ledger, start_of(kind)) for kind in (Session, Ended, Control, End))
    times = [line.fields["at"] for line in lines if line is not None]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def read(output: str | PathLike[str]) -> Run:
    """Return the state of a run, given its output, such as `results/x.jsonl`. Raise `DataError` without a ledger."""
    run = Run()
    for event in events_of(output):
        run.add(event)
    return run
