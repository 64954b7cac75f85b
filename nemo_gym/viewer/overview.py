"""The overview of a run: rewards, heat map, failures, progress, distributions, components and metrics."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.rollouts.run_record import RunRecord
from nemo_gym.schemas.row import Row
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.heatmap import Heatmap
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import COMPONENTS, LONGEST_PARSED, key_of
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.index.run_index import never
from nemo_gym.viewer.index.words import Cancelled
from nemo_gym.viewer.run_metrics import metrics_of
from nemo_gym.viewer.run_view import RunView, moment_of

BINS = 20
MOST_CAUSES = 100
MOST_MESSAGE = 2000
PROGRESS_POINTS = 300
CLOCKS_DIFFER_S = 60.0
LOOK_EVERY = 20_000
"""Rollouts between two looks at whether the client is still there."""
MEASURED = ("steps", "input_tokens", "output_tokens", "seconds", "model_seconds", "tool_seconds")


def overview_of(run: RunView, filter: Filter, *, is_cancelled: Callable[[], bool] = never) -> JsonObject:
    """Return the `Overview` of api.ts for the selected rollouts. Raise `Cancelled` if the client has left."""
    with run.index.selection(filter, is_cancelled) as (db, selected):
        return run.index.kept(db, selected, "overview", lambda: _overview(run, db, selected, is_cancelled)) | {
            "metrics": metrics_of(run.files)
        }


def _overview(
    run: RunView, db: sqlite3.Connection, selected: Selected, is_cancelled: Callable[[], bool]
) -> JsonObject:
    rewards, heatmap = _scores(db, selected, is_cancelled)
    return {
        "counts": _counts(db, selected, is_planned=run.files.materialized.exists()),
        "rewards": rewards,
        "heatmap": heatmap,
        "failures": list(_failures(run, db, selected)),
        "progress": _progress(db, selected, run.record),
        "distributions": list(_distributions(db, selected, is_cancelled)),
        "components": list(_components(db, selected)),
    }


def _counts(db: sqlite3.Connection, selected: Selected, *, is_planned: bool) -> JsonObject:
    found = dict(db.execute(f"SELECT outcome, COUNT(*) {selected.clause} GROUP BY 1", selected.values).fetchall())
    counts = {outcome: found.get(outcome, 0) for outcome in ("scored", "failed", "unresolved")}
    return (
        {"planned": sum(counts.values()), **counts} if is_planned else {"planned": None, **counts, "unresolved": None}
    )


def _scores(
    db: sqlite3.Connection, selected: Selected, is_cancelled: Callable[[], bool]
) -> tuple[list[JsonObject], JsonObject]:
    """Return the histograms of rewards and the heat map, from one pass over the rollouts."""
    (tasks,) = db.execute(f"SELECT COUNT(DISTINCT id >> 20) {selected.clause}", selected.values).fetchone()
    heatmap = Heatmap(tasks)
    by_agent: dict[str | None, dict[int, list[float]]] = {}
    rows = db.execute(f"SELECT id, agent, outcome, reward {selected.clause} ORDER BY id", selected.values)
    for count, (number, agent, outcome, reward) in enumerate(rows):
        if count % LOOK_EVERY == 0 and is_cancelled():
            raise Cancelled
        key = key_of(number)
        heatmap.add(key, reward, is_failed=outcome == "failed")
        if reward is not None:
            by_task = by_agent.setdefault(agent, {})
            by_task.setdefault(key.task, []).append(reward)
    return _histograms(by_agent), heatmap.as_json()


def _histograms(by_agent: dict[str | None, dict[int, list[float]]]) -> list[JsonObject]:
    extremes = [
        bound
        for by_task in by_agent.values()
        for rewards in by_task.values()
        for bound in (min(rewards), max(rewards))
    ]
    low, high = min(extremes, default=0.0), max(extremes, default=1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return [
        {
            "agent": agent,
            "low": low,
            "high": high,
            "counts": _binned((reward for each in by_task.values() for reward in each), low, high),
            **_mean_of(by_task),
        }
        for agent, by_task in sorted(by_agent.items(), key=lambda each: each[0] or "")
    ]


def _mean_of(by_task: dict[int, list[float]]) -> JsonObject:
    found = mean_interval(by_task)
    is_known = len(by_task) > 1 and math.isfinite(found.low) and math.isfinite(found.high)
    return {"mean": found.mean, "ci": [found.low, found.high] if is_known else None}


def _binned(values: Iterator[float] | Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * BINS
    scale = BINS / (high - low) if high > low else 0.0
    for value in values:
        counts[min(int((value - low) * scale), BINS - 1)] += 1
    return counts


def _failures(run: RunView, db: sqlite3.Connection, selected: Selected) -> Iterator[JsonObject]:
    """Yield the failures by cause, each with the message of its first rollout."""
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
        return (Row(place.read()).failure_message or "")[:MOST_MESSAGE]
    except DataError as error:
        return str(error)


def _progress(db: sqlite3.Connection, selected: Selected, record: RunRecord | None) -> JsonObject:
    """Return how many rollouts had ended, and how many were running, at points in time."""
    timed = Selected(selected.tables, list(selected.conditions), list(selected.values))
    timed.add("ended_at IS NOT NULL")
    if record is not None:
        # Replies from a cache have the time of their first use.
        for sign, bound in ((">=", _session_start(record)), ("<=", moment_of(record.ended_at))):
            if bound is not None:
                shift = CLOCKS_DIFFER_S if sign == "<=" else -CLOCKS_DIFFER_S
                timed.add(f"ended_at {sign} ?", bound.timestamp() + shift)
    began, ended, count, started = db.execute(
        f"SELECT MIN(COALESCE(started_at, ended_at)), MAX(ended_at), COUNT(*), COUNT(started_at) {timed.clause}",
        timed.values,
    ).fetchone()
    if not count or ended <= began:
        return {"at_s": [], "finished": [], "in_flight": []}
    step = (ended - began) / (PROGRESS_POINTS - 1)
    finished = _cumulated(db, timed, "ended_at", began, step)
    running: list[int | None] = [None] * PROGRESS_POINTS
    if started == count:
        begun = _cumulated(db, timed, "started_at", began, step)
        running = [max(0, before - after) for before, after in zip(begun, finished, strict=True)]
    at_s = [round(step * point, 3) for point in range(PROGRESS_POINTS)]
    return {"at_s": at_s, "finished": finished, "in_flight": running}


def _session_start(record: RunRecord) -> datetime | None:
    first = record.earlier_sessions[0] if record.earlier_sessions else record
    return moment_of(first.started_at)


def _cumulated(db: sqlite3.Connection, timed: Selected, column: str, began: float, step: float) -> list[int]:
    """Return how many rollouts have a time up to each point."""
    counts = [0] * PROGRESS_POINTS
    rows = db.execute(
        f"SELECT CAST(({column} - ?) / ? + 0.999999 AS INTEGER), COUNT(*) {timed.clause} GROUP BY 1",
        (began, step, *timed.values),
    )
    for point, count in rows:
        counts[min(max(point, 0), PROGRESS_POINTS - 1)] += count
    return list(accumulate(counts))


def _distributions(
    db: sqlite3.Connection, selected: Selected, is_cancelled: Callable[[], bool]
) -> Iterator[JsonObject]:
    for name in MEASURED:
        if is_cancelled():
            raise Cancelled
        there = Selected(selected.tables, [*selected.conditions, f"{name} IS NOT NULL"]).clause
        values = [value for (value,) in db.execute(f"SELECT {name} {there}", selected.values)]
        if values:
            yield _distribution(name, values)


def _distribution(name: str, values: list[float]) -> JsonObject:
    values.sort()
    low, high, count = values[0], values[-1], len(values)
    # Few outliers must not squeeze all others into one bin, so the last bin has all larger values.
    high = min(high, max(values[math.ceil(0.99 * count) - 1] * 1.25, low))
    return {
        "name": name,
        "low": low,
        "high": high,
        "counts": _binned(values, low, high),
        "mean": sum(values) / count,
        "p50": values[(count - 1) // 2],
        "p95": values[math.ceil(0.95 * count) - 1],
        "max": values[-1],
    }


def _components(db: sqlite3.Connection, selected: Selected) -> Iterator[JsonObject]:
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
