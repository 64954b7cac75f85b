"""Write the events of a run to its ledger."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping

from nemo_gym.jsonl import Appender, JsonObject, WriteFailed, Written, dump_line, line_digest, read_lines_at
from nemo_gym.rollouts.job import FileName, RunFiles
from nemo_gym.rollouts.ledger import End, Event, Planned, Scan, Task, as_json
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.usage import PriceFile, Tokens, cost_of
from nemo_gym.schemas.row import Row, TaskKey, key_at_end

logger = logging.getLogger(__name__)

MESSAGE_CHARACTERS = 300
TASKS_AT_ONCE = 1000
"""The number of events that are written together, because a system call for each would take most of the time."""


def ended_of(
    row: Row, outcome: Outcome, tokens: Mapping[str, Tokens], prices: PriceFile | None = None, *, at: float
) -> JsonObject:
    """Return the event for the end of an attempt as it is written (see `Ended`), without the place of the row."""
    # Build the object itself instead of an `Ended`, because this takes a third of the time.
    key = row.key
    event: JsonObject = {
        "event": "ended", "file": None, "at": round(at, 3), "task": key.task, "repeat": key.repeat,
        "attempt": row.attempt, "outcome": outcome.value, "agent": row.agent,
    }  # fmt: skip
    if outcome is Outcome.SCORED:
        event["reward"] = row.reward
    elif outcome is Outcome.FAILED:
        event["cause"] = str(row.failure_class)
        event["message"] = (row.failure_message or "")[:MESSAGE_CHARACTERS]
        if row.is_terminal:
            event["is_final"] = True
    if tokens:
        # orjson rejects subclasses of tuples.
        event["usage"] = {model: list(counts) for model, counts in tokens.items()}
        if prices is not None:
            event["cost"] = cost_of(tokens, prices)
    return event


def place(event: JsonObject, file: FileName, written: Written) -> JsonObject:
    """Add the place of the row to an event."""
    offset, line = written
    event["file"] = file
    event["offset"] = offset
    event["bytes"] = len(line) - line.endswith(b"\n")
    event["digest"] = line_digest(line).hex()
    return event


class LedgerWriter:
    """The ledger of a run, open for appending. The caller must hold the output's lock.

    If an event cannot be written, raise `WriteFailed`. Then the ledger gets no further events, so that the missing one
    is noticed when the run is resumed.
    """

    def __init__(
        self, files: RunFiles, *, hide: Callable[[bytes], bytes] | None = None, prices: PriceFile | None = None
    ) -> None:
        """`hide` masks secrets in each event."""
        self._files = files
        self._prices = prices
        self._file = Appender(files.ledger, hide=hide)
        self._is_complete = True
        self._sizes = {name: size for name, (size, _) in stats_of(files).items()}
        """The sizes of the files as far as their rows have events."""

    def add(self, event: Event) -> None:
        self.add_json(as_json(event))

    def add_json(self, *events: JsonObject) -> None:
        """Add events as they are written."""
        if not self._is_complete:
            return
        try:
            self._file.append(b"".join(map(dump_line, events)))
        except WriteFailed:
            self._is_complete = False
            raise

    def ended(self, record: Record, file: FileName | None = None, written: Written | None = None) -> None:
        """Add the end of an attempt, whose row was written to a file. Without `written`, the row was not written."""
        timing = record.timing
        # A rollout of a group is written later, when all of its group have ended.
        at = time.time() if timing is None else timing.began_at + timing.seconds
        event = ended_of(record.row, record.outcome, record.tokens, self._prices, at=at)
        if timing is not None:
            event["seconds"] = timing.seconds
            if timing.phases:
                event["phases"] = timing.phases
            if timing.tools:
                event["tools"] = timing.tools
        if file is None or written is None:
            del event["file"]
            self.add_json(event)
            return
        self.add_json(place(event, file, written))
        self._sizes[file] = written.offset + len(written.line)

    def task(self, key: TaskKey, written: Written) -> None:
        """Add a rollout that a trainer plans, whose row was written to the materialized inputs."""
        offset, line = written
        size = len(line) - line.endswith(b"\n")
        self.add(Task(key.task, key.repeat, offset, size, line_digest(line).hex(), is_further=True))
        self._sizes["materialized_inputs"] = offset + len(line)

    def list_tasks(self, *, has_groups: bool) -> Planned:
        """Add the planned rollouts, read from the materialized inputs, in place of all that were listed earlier."""
        self.add(Scan(time.time(), "materialized_inputs"))
        path = self._files.materialized
        rollouts, tasks, known = 0, set[int](), path.stat()
        events: list[JsonObject] = []
        for offset, (number, raw) in read_lines_at(path):
            key = key_at_end(raw, path, number)
            digest = line_digest(raw).hex()
            events.append({
                "event": "task", "task": key.task, "repeat": key.repeat, "offset": offset, "bytes": len(raw),
                "digest": digest,
            })  # fmt: skip
            rollouts += 1
            tasks.add(key.task)
            if len(events) == TASKS_AT_ONCE:
                self.add_json(*events)
                events.clear()
        planned = Planned(time.time(), rollouts, len(tasks), has_groups, known.st_size, known.st_mtime_ns)
        self.add_json(*events, as_json(planned))
        return planned

    def sync(self) -> None:
        self._file.sync()

    def end(self, state: str, reason: str | None = None) -> None:
        """Record the end of the session. All other files of the run must have been closed.

        If the disk is full, or if an error has kept a row from getting its event, the run counts as killed when it is
        resumed.
        """
        stats = stats_of(self._files)
        if any(size != self._sizes.get(name, 0) for name, (size, _) in stats.items()):
            return
        try:
            self.add(End(time.time(), state, reason, self._file.size, stats))
            self.sync()
        except WriteFailed as error:
            logger.warning("%s", error)

    def close(self) -> None:
        self._file.close()


def write_ended(record: Record, results: Appender, failures: Appender, ledger: LedgerWriter) -> None:
    """Write the row of an ended attempt and its event. Do nothing for a rollout that is not graded yet."""
    if record.outcome is Outcome.SCORED:
        ledger.ended(record, "results", results.write(record.row.fields))
    elif record.outcome is Outcome.FAILED:
        ledger.ended(record, "failures", failures.write(record.row.fields))
    elif not record.is_ungraded:
        ledger.ended(record)


def stats_of(files: RunFiles) -> Mapping[str, tuple[int, int]]:
    """Return the size and the time of the last change, in ns, of each file with rows of rollouts."""
    found: dict[str, tuple[int, int]] = {}
    for name, path in files.with_rows.items():
        try:
            known = os.stat(path)
        except FileNotFoundError:
            continue
        found[name] = known.st_size, known.st_mtime_ns
    return found
