"""The overview of a run: rewards, heat map, failures, progress, distributions and components; and its metrics."""

from __future__ import annotations

import math
import mmap
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.errors import DataError
from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.metrics.meanings import meaning_of
from nemo_gym.records.conversation import object_at
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
MOST_METRICS = 300
MOST_MESSAGE = 2000
MEASURED = ("steps", "input_tokens", "output_tokens", "seconds", "model_seconds", "tool_seconds")
MOST_ROWS, MOST_REPEATS = 200, 64
"""The maximum number of squares of the heat map in each direction, if each task has a row."""
MOST_SQUARES = 1000
"""The maximum number of squares if the repeats of a task share one."""
MOST_SAMPLED = 20_000
"""From this number of rollouts on, distributions are those of a sample, and intervals use the mean of each task."""
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
        }


def _overview(run: RunView, db: sqlite3.Connection, selected: Selected) -> Mapping[str, object]:
    scores = _scores(db, selected)
    total, is_planned = scores.outcomes.total(), run.files.materialized.exists()
    every = -(-total // MOST_SAMPLED) or 1
    return {
        "counts": {
            "planned": total if is_planned else None, "scored": scores.outcomes["scored"],
            "failed": scores.outcomes["failed"], "unresolved": scores.outcomes["unresolved"] if is_planned else None,
        },
        "rewards": [
            {"agent": agent, **_histogram(scores.rewards[agent]), **_mean_of(by_task)}
            for agent, by_task in sorted(scores.by_task.items(), key=lambda each: each[0] or "")
        ],
        "heatmap": scores.heatmap,
        "failures": list(_failures(run, db, selected)),
        "distributions": list(_distributions(db, selected, every)),
        "sampled": total // every if every > 1 else None,
        "components": list(_components(db, selected)),
    }  # fmt: skip


def _histogram(rewards: Mapping[float, int]) -> Mapping[str, object]:
    low, high = min(rewards), max(rewards)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return {"low": low, "high": high, "counts": _binned(rewards, low, high)}


def _mean_of(by_task: Mapping[int, Sequence[float]]) -> Mapping[str, object]:
    found = mean_interval(by_task)
    is_known = len(by_task) > 1 and math.isfinite(found.low) and math.isfinite(found.high)
    return {"mean": found.mean, "ci": [found.low, found.high] if is_known else None}


def _binned(counts: Mapping[float, int], low: float, high: float) -> list[int]:
    """Count the values in `BINS` bins of equal width. The last bin also has all larger values."""
    # Halve the numbers, because the difference of two finite numbers may overflow to infinity.
    half = high / 2 - low / 2
    bins = [0] * BINS
    for value, count in counts.items():
        share = (value / 2 - low / 2) / half if half > 0 else 0.0
        bins[int(min(share * BINS, BINS - 1))] += count
    return bins


class _Scores(NamedTuple):
    """What the outcomes and rewards of rollouts show, from one pass over them."""

    outcomes: Counter[str]
    rewards: Mapping[str | None, Counter[float]]
    """The rewards of each agent, with their numbers."""
    by_task: Mapping[str | None, Mapping[int, list[float]]]
    """The rewards of each agent's tasks; from `MOST_SAMPLED` rollouts on, only their means."""
    heatmap: Mapping[str, object]
    """The heat map. If there are too many tasks, neighbouring tasks share a square, and so do all of their repeats."""


def _scores(db: sqlite3.Connection, selected: Selected) -> _Scores:
    number = f"id & {(1 << REPEAT_BITS) - 1}"
    size = f"SELECT COUNT(*), COUNT(DISTINCT task), COALESCE(MAX({number}) + 1, 0) {selected.clause}"
    total, tasks, repeats = db.execute(size, selected.values).fetchone()
    per_column = max(1, repeats if tasks > MOST_ROWS else -(-repeats // MOST_REPEATS))
    per_row = max(1, -(-tasks // (MOST_SQUARES if tasks > MOST_ROWS else MOST_ROWS)))
    columns = -(-repeats // per_column)
    outcomes, rewards = Counter[str](), defaultdict[str | None, Counter[float]](Counter)
    by_task: dict[str | None, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    # For each square, the sum and the number of rewards and the number of failures.
    squares = [[0.0, 0, 0] for _ in range(-(-tasks // per_row) * columns)]
    listed: list[int] = []
    # Without the repeats, the order of the groups is that of an index, so that nothing is sorted.
    column_of, order = (f"({number}) / {per_column}", "1, 2, 3, 4, 5") if columns > 1 else ("0", "1, 3, 4, 5")
    groups = (
        f"SELECT task, {column_of}, agent, outcome, reward, COUNT(*) {selected.clause} GROUP BY {order} ORDER BY 1"
    )
    for task, column, agent, outcome, reward, count in db.execute(groups, selected.values):
        if not listed or listed[-1] != task:
            listed.append(task)
        square = squares[(len(listed) - 1) // per_row * columns + column]
        outcomes[outcome] += count
        if reward is not None:
            square[0] += reward * count
            square[1] += count
            rewards[agent][reward] += count
            by_task[agent][task] += [reward] * count
        elif outcome == "failed":
            square[2] += count
    rows = [listed[at : at + per_row] for at in range(0, tasks, per_row)]
    cells = [_shown(*square) for square in squares]
    heatmap = {
        "tasks": [{"first": row[0], "count": len(row)} for row in rows], "repeats": columns,
        "per_column": per_column, "of_repeats": repeats,
        "cells": [cells[at : at + columns] for at in range(0, len(cells), columns or 1)],
    }  # fmt: skip
    if total > MOST_SAMPLED:
        for agent, means in by_task.items():
            by_task[agent] = {task: [sum(values) / len(values)] for task, values in means.items()}
    return _Scores(outcomes, rewards, by_task, heatmap)


def _shown(total: float, rewards: float, failures: float) -> float | str | None:
    return total / rewards if rewards else "failed" if failures else None


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


def _distributions(db: sqlite3.Connection, selected: Selected, every: int) -> Iterator[Mapping[str, object]]:
    """Yield the distribution of each measure, from one of `every` so many rollouts."""
    sampled = f"((id >> {REPEAT_BITS}) * 7919 + (id & {(1 << REPEAT_BITS) - 1})) % {every} = 0"
    chosen = Selected(selected.tables, [*selected.conditions, *([sampled] if every > 1 else [])]).clause
    rows = db.execute(f"SELECT {', '.join(MEASURED)} {chosen}", selected.values)
    for name, column in zip(MEASURED, zip(*rows, strict=True), strict=False):
        values = sorted(value for value in column if value is not None)
        if values:
            yield _distribution(name, values)


def _distribution(name: str, values: list[float]) -> Mapping[str, object]:
    low, high, count = values[0], values[-1], len(values)
    # Count all values above a limit in the last bin. Otherwise, outliers could squeeze all other values into one bin.
    high = min(high, max(values[math.ceil(0.99 * count) - 1] * 1.25, low))
    return {
        "name": name, "low": low, "high": high, "counts": _binned(Counter(values), low, high),
        "mean": sum(values) / count, "p50": values[(count - 1) // 2], "p95": values[math.ceil(0.95 * count) - 1],
        "max": values[-1],
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


def metrics_of(run: RunView, words: str = "", *, is_whole: bool = False) -> Mapping[str, object]:
    """Return the key metrics of a run, or with `is_whole` all of them, that contain words (type `Metrics` in api.ts).

    If the file is unreadable, return an empty list of metrics.
    """
    try:
        entries = list(_entries(run.files.metrics)) if run.index.allows(run.files.metrics) else []
    except (OSError, ValueError):
        entries = []
    named = [
        (name not in object_at(entry.fields, "key_metrics"), entry.agent, name, value)
        for entry in entries for name, value in object_at(entry.fields, "agent_metrics").items()
    ]  # fmt: skip
    has_keys = not all(is_other for is_other, *_ in named)
    wanted = words.lower().split()
    chosen = [
        each for each in named
        if (is_whole or wanted or not has_keys or not each[0])
        and all(word in f"{each[2]} {each[1] or ''} {meaning_of(each[2]) or ''}".lower() for word in wanted)
    ]  # fmt: skip
    rows = [
        {"agent": agent, "name": name, "value": value, "meaning": meaning_of(name), "is_key": not is_other}
        for is_other, agent, name, value in sorted(chosen, key=lambda each: each[0])[:MOST_METRICS]
    ]
    return {"of": len(named), "total": len(chosen), "has_keys": has_keys, "rows": rows}


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
