"""The course of a training: what changed with the policy's version, and when tasks stopped teaching."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import orjson

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.index.run_index import never
from nemo_gym.viewer.run_view import RunView

Over = Literal["version", "step"]
MOST_POINTS, MOST_COLUMNS, MOST_ROWS, MOST_LISTED = 300, 64, 200, 50
AT: Mapping[Over, str] = {
    "version": "version",
    "step": "(SELECT step FROM trained WHERE trained.at >= ended_at AND step IS NOT NULL ORDER BY at LIMIT 1)",
}
"""The SQL of a rollout's place in the training. A rollout belongs to the first step that was noted after its end."""
_NEWEST = (
    "(SELECT trained.version FROM trained WHERE trained.at <= ended_at AND trained.version IS NOT NULL"
    " ORDER BY at DESC LIMIT 1)"
)
_IS_KNOWN = "ended_at IS NOT NULL AND EXISTS (SELECT 1 FROM trained WHERE trained.version IS NOT NULL)"
MEANS = {
    "reward": "reward", "failed": "outcome = 'failed'", "output_tokens": "output_tokens",
    "staleness": f"CASE WHEN {_IS_KNOWN} THEN MAX(0, COALESCE({_NEWEST}, version) - version) END",
    "log_prob": "log_prob",
}  # fmt: skip
"""The SQL of each curve. The staleness is how many versions the newest policy was ahead when the rollout ended."""
Kind = Literal["never", "mixed", "always"]
Groups = dict[object, list[tuple[int, Kind, int]]]
"""For each prompt, the place, the kind and the task index of each of its groups."""


def training_of(
    run: RunView, filter: Filter, over: Over = "version", is_cancelled: Callable[[], bool] = never
) -> Mapping[str, object]:
    """Return the curves and the map of tasks of a training (type `Training` in api.ts)."""
    with run.index.selection(filter, is_cancelled) as (db, selected):
        return run.index.kept(db, selected, f"training {over}", lambda: _training(db, selected, over))


def _training(db: sqlite3.Connection, selected: Selected, over: Over) -> Mapping[str, object]:
    version = fields_in(db).get("policy_version")
    has_steps = bool(db.execute("SELECT 1 FROM trained WHERE step IS NOT NULL LIMIT 1").fetchone())
    found: dict[str, object] = {"has_steps": has_steps, "points": [], "curves": [], "noted": list(_noted(db))}
    groups: Groups = defaultdict(list)
    points: set[int] = set()
    curves: dict[str | None, dict[int, list[float]]] = defaultdict(dict)
    if version is not None and version.kind == "number":
        there = Selected(selected.tables, [*selected.conditions], [*selected.values])
        there.join(version.table)
        rollouts = f"(SELECT *, {version.table}.{version.column} AS version {there.clause})"
        rollouts = f"FROM (SELECT *, CAST({AT[over]} AS INTEGER) AS place FROM {rollouts}) WHERE place IS NOT NULL"
        first, last = db.execute(f"SELECT MIN(place), MAX(place) {rollouts}", there.values).fetchone()
        width = max(1, -(-(last - first + 1) // MOST_POINTS)) if first is not None else 1
        sums = ", ".join(f"TOTAL({mean}), COUNT({mean})" for mean in MEANS.values())
        rows = db.execute(
            f"SELECT task, agent, place / {width} * {width}, MIN(reward), MAX(reward), {sums} {rollouts}"
            " GROUP BY 1, 2, 3",
            there.values,
        )
        prompts = dict(db.execute("SELECT task, digest FROM prompts"))
        for task, agent, place, low, high, *numbers in rows:
            points.add(place)
            is_mixed = [float(low < high), 1.0] if low is not None else [0.0, 0.0]
            before = curves[agent].get(place, [0.0] * (len(numbers) + 2))
            curves[agent][place] = [one + other for one, other in zip(before, (*numbers, *is_mixed), strict=True)]
            if low is not None:
                kind: Kind = "mixed" if low < high else "always" if low >= 1 else "never"
                groups[prompts.get(task) or ("task", task)].append((place, kind, task))
    found["points"] = ordered = sorted(points)
    found["curves"] = [
        {"agent": agent, **{name: [_mean(of_agent.get(place), at) for place in ordered]
                            for at, name in enumerate((*MEANS, "mixed"))}}
        for agent, of_agent in sorted(curves.items(), key=lambda each: each[0] or "")
    ]  # fmt: skip
    return {**found, **_map(db, groups, ordered)}


def _mean(sums: list[float] | None, at: int) -> float | None:
    return sums[2 * at] / sums[2 * at + 1] if sums and sums[2 * at + 1] else None


def _map(db: sqlite3.Connection, groups: Groups, points: list[int]) -> Mapping[str, object]:
    """Return the map of tasks by place, those that stopped first on top, and the numbers of tasks by their state.

    A task that was sampled at one place only is not on the map. Neighbours share a row if there are too many tasks.
    """
    per_column = max(1, -(-len(points) // MOST_COLUMNS))
    column_of = {place: at // per_column for at, place in enumerate(points)}
    counts = {"teaching": 0, "stopped": 0, "flat": 0, "once": 0}
    tasks: list[tuple[int, int, list[tuple[int, Kind, int]]]] = []
    for seen in groups.values():
        latest = max(place for place, _, _ in seen)
        taught = max((place for place, kind, _ in seen if kind == "mixed"), default=-1)
        is_once = all(place == latest for place, _, _ in seen)
        state = "once" if is_once else "teaching" if taught == latest else "stopped" if taught >= 0 else "flat"
        counts[state] += 1
        if not is_once:
            tasks.append((taught, min(task for _, _, task in seen), seen))
    tasks.sort(key=lambda each: each[:2])
    per_row = max(1, -(-len(tasks) // MOST_ROWS))
    rows = []
    for at in range(0, len(tasks), per_row):
        cells: list[dict[Kind, int]] = [{"never": 0, "mixed": 0, "always": 0} for _ in points[::per_column]]
        numbers = [task for _, _, seen in tasks[at : at + per_row] for _, _, task in seen]
        for _, _, seen in tasks[at : at + per_row]:
            for place, kind, _ in seen:
                cells[column_of[place]][kind] += 1
        title = db.execute("SELECT title FROM titles WHERE task = ?", (numbers[0],)).fetchone()
        rows.append({
            "count": len(tasks[at : at + per_row]), "tasks": numbers[:MOST_LISTED],
            "taught_until": taught if (taught := tasks[at][0]) >= 0 else None, "title": title[0] if title else "",
            "cells": [[*cell.values()] if any(cell.values()) else None for cell in cells],
        })  # fmt: skip
    return {"counts": counts, "columns": points[::per_column], "rows": rows}


def _noted(db: sqlite3.Connection) -> Iterator[Mapping[str, object]]:
    """Yield the numbers that the trainer noted, such as its loss, by step or else by version."""
    curves: dict[str, dict[float, float]] = defaultdict(dict)
    notes = db.execute("SELECT COALESCE(step, version), numbers FROM trained WHERE numbers <> '{}' ORDER BY at")
    for number, (place, numbers) in enumerate(notes):
        for name, value in orjson.loads(numbers).items():
            curves[name][number if place is None else place] = value
    for name, values in [*curves.items()][:MOST_LISTED]:
        every = max(1, len(values) // MOST_POINTS)
        places = sorted(values)[::every]
        yield {"name": name, "at": places, "values": [values[place] for place in places]}
