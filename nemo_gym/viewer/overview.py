"""The overview of a run: rewards, heat map, failures, progress, distributions, components and metrics."""

from __future__ import annotations

import math
import mmap
import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from pathlib import Path

import orjson

from nemo_gym.errors import DataError
from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.metrics.meanings import meaning_of
from nemo_gym.records.conversation import object_at
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import RunRecord
from nemo_gym.schemas.row import Row
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import COMPONENTS, LONGEST_PARSED, REPEAT_BITS, key_of
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.index.run_index import never
from nemo_gym.viewer.run_view import RunView
from nemo_gym.viewer.timeline import moment_of

BINS = 20
MOST_CAUSES = 100
MOST_MESSAGE = 2000
MEASURED = ("steps", "input_tokens", "output_tokens", "seconds", "model_seconds", "tool_seconds")
MOST_ROWS = 200
MOST_REPEATS = 64
LARGEST_METRICS = 4 << 20
"""If a metrics file has more than this many bytes, its metrics per task are skipped. The viewer does not show them."""
CLOCKS_DIFFER_S = 60.0
MOST_POINTS = 300
_PART = re.compile(rb'^    "(agent_ref|agent_metrics|key_metrics)": \{', re.MULTILINE)
_END = b"\n    }"


def overview_of(run: RunView, filter: Filter, *, is_cancelled: Callable[[], bool] = never) -> Mapping[str, object]:
    """Return the overview of the selected rollouts (type `Overview` in api.ts).

    Raise `Cancelled` if the client disconnects.
    """
    with run.index.selection(filter, is_cancelled) as (db, selected):
        return {
            **run.index.kept(db, selected, "overview", lambda: _overview(run, db, selected)),
            "progress": run.index.kept(db, selected, "progress", lambda: progress_of(db, selected, run.record)),
            "metrics": metrics_of(run.files) if run.index.allows(run.files.metrics) else [],
        }


def _overview(run: RunView, db: sqlite3.Connection, selected: Selected) -> Mapping[str, object]:
    return {
        "counts": _counts(db, selected, is_planned=run.files.materialized.exists()),
        **_scores(db, selected),
        "failures": list(_failures(run, db, selected)),
        "distributions": list(_distributions(db, selected)),
        "components": list(_components(db, selected)),
    }


def _counts(db: sqlite3.Connection, selected: Selected, *, is_planned: bool) -> Mapping[str, object]:
    found = dict(db.execute(f"SELECT outcome, COUNT(*) {selected.clause} GROUP BY 1", selected.values).fetchall())
    counts = {outcome: found.get(outcome, 0) for outcome in ("scored", "failed", "unresolved")}
    return (
        {"planned": sum(counts.values()), **counts} if is_planned else {"planned": None, **counts, "unresolved": None}
    )


def _scores(db: sqlite3.Connection, selected: Selected) -> Mapping[str, object]:
    """Return the histograms of rewards and the heat map, from one pass over the rollouts."""
    (tasks,) = db.execute(f"SELECT COUNT(DISTINCT id >> 20) {selected.clause}", selected.values).fetchone()
    by_agent: dict[str | None, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    columns = f"id >> {REPEAT_BITS}, id & {(1 << REPEAT_BITS) - 1}, agent, outcome = 'failed', reward"

    def rollouts() -> Iterator[tuple[int, int, float | None, bool]]:
        rows = db.execute(f"SELECT {columns} {selected.clause} ORDER BY id", selected.values)
        for task, repeat, agent, is_failed, reward in rows:
            if reward is not None:
                by_agent[agent][task].append(reward)
            yield task, repeat, reward, is_failed

    return {"heatmap": _heatmap(rollouts(), tasks), "rewards": _histograms(by_agent)}


def _histograms(by_agent: dict[str | None, dict[int, list[float]]]) -> list[Mapping[str, object]]:
    agents = sorted(by_agent.items(), key=lambda each: each[0] or "")
    return [{"agent": agent, **_histogram(by_task), **_mean_of(by_task)} for agent, by_task in agents]


def _histogram(by_task: dict[int, list[float]]) -> Mapping[str, object]:
    rewards = sorted(chain.from_iterable(by_task.values()))
    low, high = rewards[0], rewards[-1]
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return {"low": low, "high": high, "counts": _binned(rewards, low, high)}


def _mean_of(by_task: dict[int, list[float]]) -> Mapping[str, object]:
    found = mean_interval(by_task)
    is_known = len(by_task) > 1 and math.isfinite(found.low) and math.isfinite(found.high)
    return {"mean": found.mean, "ci": [found.low, found.high] if is_known else None}


def _binned(values: Sequence[float], low: float, high: float) -> list[int]:
    """Count the values of a sorted list in `BINS` bins of equal width."""
    # Halve the numbers, because the difference of two finite numbers may overflow to infinity.
    half = high / 2 - low / 2

    def bin_of(value: float) -> int:
        share = (value / 2 - low / 2) / half if half > 0 else 0.0
        return int(min(share * BINS, BINS - 1))

    ends = [bisect_right(values, number, key=bin_of) for number in range(BINS)]
    return [end - begin for begin, end in pairwise((0, *ends))]


def _failures(run: RunView, db: sqlite3.Connection, selected: Selected) -> Iterator[Mapping[str, object]]:
    """Yield the most frequent causes of failure, each with the message of its first rollout."""
    failed = Selected(selected.tables, [*selected.conditions, "outcome = 'failed'"]).clause
    groups = db.execute(
        f"SELECT failure, tier, server, COUNT(*), MIN(id) {failed} GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT ?",
        (*selected.values, MOST_CAUSES),
    )
    for cause, tier, server, count, number in groups:
        key = key_of(number)
        example = {"task": key.task, "repeat": key.repeat, "message": _message_at(run, number)}
        yield {"cause": cause or "unknown", "tier": tier, "server": server, "count": count, "example": example}


def _message_at(run: RunView, number: int) -> str:
    place = run.index.place(key_of(number))
    if place is None or place.bytes > LONGEST_PARSED:
        return ""
    try:
        return (place.read().failure_message or "")[:MOST_MESSAGE]
    except DataError as error:
        return str(error)
    except RecursionError:
        return "(nested too deeply to be shown; see the raw record)"


def _distributions(db: sqlite3.Connection, selected: Selected) -> Iterator[Mapping[str, object]]:
    for name in MEASURED:
        there = Selected(selected.tables, [*selected.conditions, f"{name} IS NOT NULL"]).clause
        values = [value for (value,) in db.execute(f"SELECT {name} {there}", selected.values)]
        if values:
            yield _distribution(name, values)


def _distribution(name: str, values: list[float]) -> Mapping[str, object]:
    values.sort()
    low, high, count = values[0], values[-1], len(values)
    # Count all values above a limit in the last bin. Otherwise, outliers could squeeze all other values into one bin.
    high = min(high, max(values[math.ceil(0.99 * count) - 1] * 1.25, low))
    return {
        "name": name, "low": low, "high": high, "counts": _binned(values, low, high), "mean": sum(values) / count,
        "p50": values[(count - 1) // 2], "p95": values[math.ceil(0.95 * count) - 1], "max": values[-1],
    }  # fmt: skip


def _components(db: sqlite3.Connection, selected: Selected) -> Iterator[Mapping[str, object]]:
    for name, field in fields_in(db).items():
        if not name.startswith(COMPONENTS) or field.kind == "text":
            continue
        tables = f"{selected.tables} JOIN {field.table} AS component USING (id)"
        groups = db.execute(
            "SELECT agent, AVG({0}), MIN({0}), MAX({0}), COUNT({0})".format(f"component.{field.column}")
            + f" {Selected(tables, selected.conditions).clause} GROUP BY agent HAVING COUNT(component.{field.column})",
            selected.values,
        )
        for agent, mean, low, high, count in groups:
            shown = name.removeprefix(COMPONENTS)
            yield {"agent": agent, "name": shown, "mean": mean, "min": low, "max": high, "count": count}


def _heatmap(rollouts: Iterable[tuple[int, int, float | None, bool]], tasks: int) -> Mapping[str, object]:
    """Return the heat map (see `Overview` in api.ts). Neighbouring tasks share a row if there are too many.

    A rollout has a task, a repeat, a reward, and whether it failed. The rollouts must be in the order of their tasks.
    """
    size = max(1, -(-tasks // MOST_ROWS))
    places: dict[int, int] = {}
    of_repeats = 0
    # For each row and repeat, the sum and the number of rewards and the number of failures.
    cells: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0, 0])
    for task, repeat, reward, is_failed in rollouts:
        place, of_repeats = places.setdefault(task, len(places)), max(of_repeats, repeat + 1)
        if repeat < MOST_REPEATS:
            cell = cells[place // size, repeat]
            cell[0] += reward or 0.0
            cell[1] += reward is not None
            cell[2] += is_failed
    repeats, listed = range(min(of_repeats, MOST_REPEATS)), [*places]
    groups = [listed[at : at + size] for at in range(0, len(listed), size)]
    return {
        "tasks": [{"first": group[0], "count": len(group)} for group in groups],
        "repeats": len(repeats), "of_repeats": of_repeats,
        "cells": [[_shown(*cells[at, repeat]) for repeat in repeats] for at in range(len(groups))],
    }  # fmt: skip


def _shown(total: float, rewards: float, failures: float) -> float | str | None:
    return total / rewards if rewards else "failed" if failures else None


def progress_of(db: sqlite3.Connection, selected: Selected, record: RunRecord | None) -> Mapping[str, object]:
    """Return the progress of the selected rollouts, from the times in the ledger or of their calls.

    If no times were recorded, the lists in the result are empty.
    """
    timed = Selected(selected.tables, list(selected.conditions), list(selected.values))
    timed.add("ended_at IS NOT NULL")
    if record is not None:
        # Skip times outside the run, because replies from a cache have the time of the original reply.
        for sign, bound in ((">=", moment_of(record.first_session.started_at)), ("<=", moment_of(record.ended_at))):
            if bound is not None:
                shift = CLOCKS_DIFFER_S if sign == "<=" else -CLOCKS_DIFFER_S
                timed.add(f"ended_at {sign} ?", bound.timestamp() + shift)
    began, ended, count, started = db.execute(
        f"SELECT MIN(COALESCE(started_at, ended_at)), MAX(ended_at), COUNT(*), COUNT(started_at) {timed.clause}",
        timed.values,
    ).fetchone()
    if not count or ended <= began:
        return {"at_s": [], "finished": [], "in_flight": []}
    step = (ended - began) / (MOST_POINTS - 1)
    finished = _cumulated(db, timed, "ended_at", began, step)
    running: list[int | None] = [None] * MOST_POINTS
    if started == count:
        begun = _cumulated(db, timed, "started_at", began, step)
        running = [max(0, before - after) for before, after in zip(begun, finished, strict=True)]
    at_s = [round(step * point, 3) for point in range(MOST_POINTS)]
    return {"at_s": at_s, "finished": finished, "in_flight": running}


def _cumulated(db: sqlite3.Connection, timed: Selected, column: str, began: float, step: float) -> list[int]:
    """Return, for each point in time, how many rollouts have a time in `column` up to this point."""
    counts = [0] * MOST_POINTS
    rows = db.execute(
        f"SELECT CAST(({column} - ?) / ? + 0.999999 AS INTEGER), COUNT(*) {timed.clause} GROUP BY 1",
        (began, step, *timed.values),
    )
    for point, count in rows:
        counts[min(max(point, 0), MOST_POINTS - 1)] += count
    return list(accumulate(counts))


def metrics_of(files: RunFiles) -> list[Mapping[str, object]]:
    """Return the metrics of all agents (see `Overview` in api.ts). If the file is unreadable, return an empty list."""
    try:
        entries = list(_entries(files.metrics))
    except (OSError, ValueError):
        return []
    return [
        {
            "agent": entry.agent, "name": name, "value": value, "meaning": meaning_of(name),
            "is_key": name in object_at(entry.fields, "key_metrics"),
        }
        for entry in entries for name, value in object_at(entry.fields, "agent_metrics").items()
    ]  # fmt: skip


def _entries(path: Path) -> Iterator[Row]:
    """Yield the entry of each agent. If the metrics file is large, omit the metrics per task."""
    if path.stat().st_size > LARGEST_METRICS:
        yield from _parts_of_entries(path)
        return
    found = orjson.loads(path.read_bytes())
    yield from (Row(entry) for entry in (found if isinstance(found, list) else ()) if isinstance(entry, dict))


def _parts_of_entries(path: Path) -> Iterator[Row]:
    # Regular expressions are reliable here: JSON strings have no line breaks, and metrics files are always indented.
    entry: dict[str, object] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for part in _PART.finditer(text):
            name, begin = part[1].decode(), part.end() - 1
            end = begin + 2 if text[begin : begin + 2] == b"{}" else text.find(_END, begin) + len(_END)
            if end <= begin:
                break
            if name in entry:
                yield Row(entry)
                entry = {}
            entry[name] = orjson.loads(text[begin:end])
    if entry:
        yield Row(entry)
