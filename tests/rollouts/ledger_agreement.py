"""Compare the ledger of a run with the run's files, by a second implementation that shares no code with the first."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from nemo_gym.rollouts import ledger

Key = tuple[int, int]
OUTCOMES = {"results": "scored", "failures": "failed"}
BOM = b"\xef\xbb\xbf"


class RowLine(NamedTuple):
    """A complete line of a file that is not blank."""

    offset: int
    raw: bytes
    """The line without a byte order mark and the characters at its end."""
    row: Any

    @property
    def key(self) -> Key:
        return self.row["_ng_task_index"], self.row["_ng_rollout_index"]

    @property
    def digest(self) -> str:
        return hashlib.sha1(self.raw).hexdigest()[:16]


class Agreement(NamedTuple):
    """The counts of a run according to its files, and how the ledger differs from them."""

    planned: int
    scored: int
    failed: Counter[str]
    eventless: list[str]
    """The rows without an event."""
    problems: list[str]
    """All other differences."""

    @property
    def unresolved(self) -> int:
        return self.planned - self.scored - self.failed.total()


def compared(output: Path) -> Agreement:
    """Compare all files of a run, which may have been killed."""
    run_ledger = output.with_name(f"{output.stem}_run") / "ledger.jsonl"
    paths = {
        "results": output,
        "failures": output.with_name(f"{output.stem}_failures.jsonl"),
        "materialized_inputs": output.with_name(f"{output.stem}_materialized_inputs.jsonl"),
    }
    events = [line.row for line in _lines(run_ledger)]
    rows = {name: list(_lines(path)) for name, path in paths.items()}
    problems = [*_problems_of_tasks(events, rows["materialized_inputs"], paths["materialized_inputs"])]
    eventless: list[str] = []
    for name, outcome in OUTCOMES.items():
        live = [event for event in _live(events, name) if event["event"] == "ended" and event.get("file") == name]
        by_offset = {event["offset"]: event for event in live}
        if len(by_offset) < len(live):
            problems.append(f"{name}: {len(live) - len(by_offset)} rows have several events")
        for number, line in enumerate(rows[name], start=1):
            event = by_offset.pop(line.offset, None)
            if event is None:
                eventless.append(f"{name}:{number}")
            else:
                problems += [f"{name}:{number}: {each}" for each in _differences(event, line, outcome)]
        problems += [f"{name}: no row at {offset}" for offset in by_offset]
    planned = {line.key for line in rows["materialized_inputs"]}
    scored = Counter(line.key for line in rows["results"])
    problems += [f"{key} was scored {count} times" for key, count in scored.items() if count > 1]
    causes = {line.key: str(line.row["_ng_failure_class"]) for line in rows["failures"]}
    problems += [f"{key} is not planned" for key in {*scored, *causes} - planned]
    failed = Counter(cause for key, cause in causes.items() if key not in scored)
    return Agreement(len(planned), len(scored), failed, eventless, problems)


def expect_agreement(output: Path) -> Agreement:
    """Check that the ledger agrees with the files of a run whose latest session has ended, and with its own reader."""
    found = compared(output)
    assert (found.eventless, found.problems) == ([], [])
    run = ledger.read(output)
    assert run.end is not None
    counts = (run.planned, len(run.scored), run.failed, run.unresolved)
    assert counts == (found.planned, found.scored, found.failed, found.unresolved)
    assert found.unresolved >= 0
    return found


def _lines(path: Path) -> Iterator[RowLine]:
    offset = 0
    for raw in BytesIO(path.read_bytes()) if path.exists() else ():
        start = offset + len(BOM) * raw.startswith(BOM)
        offset += len(raw)
        line = raw.removeprefix(BOM).rstrip()
        if line and raw.endswith(b"\n"):
            yield RowLine(start, line, json.loads(line))


def _live(events: list[Any], name: str) -> list[Any]:
    """Return the events since the latest one that makes all earlier events with rows in this file void."""
    scans = [at for at, event in enumerate(events) if event["event"] == "scan" and event["file"] == name]
    return events[scans[-1] :] if scans else events


def _problems_of_tasks(events: list[Any], rows: list[RowLine], path: Path) -> Iterator[str]:
    live = _live(events, "materialized_inputs")
    planned = [event for event in live if event["event"] == "planned"]
    if not planned:
        # The session was killed before it had listed the tasks.
        return
    named = [(each["task"], each["repeat"], each["offset"], each["bytes"], each["digest"])
             for each in live if each["event"] == "task"]  # fmt: skip
    if named != [(*line.key, line.offset, len(line.raw), line.digest) for line in rows]:
        yield "the task events differ from the materialized inputs"
    known = planned[-1]
    counts = (known["rollouts"], known["tasks"], known["bytes"], known["mtime_ns"])
    if counts != (len(rows), len({line.key[0] for line in rows}), path.stat().st_size, path.stat().st_mtime_ns):
        yield f"{counts} differs from the materialized inputs"


def _differences(event: Any, line: RowLine, outcome: str) -> Iterator[str]:
    row = line.row
    cause = row.get("_ng_failure_class")
    expected = {
        "bytes": len(line.raw),
        "digest": line.digest,
        "task": line.key[0],
        "repeat": line.key[1],
        "attempt": row.get("_ng_attempt_index") or 0,
        "outcome": outcome,
        "agent": row["agent_ref"]["name"],
        "reward": row["reward"] if outcome == "scored" else None,
        "cause": cause if outcome == "failed" else None,
    }
    for name, value in expected.items():
        if event.get(name) != value:
            yield f"{name} is {event.get(name)!r}, but {value!r} in the row"
