"""Groups of rollouts: the tasks, the rollouts with the same value of a field, and those that called the same tool."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected, order_of
from nemo_gym.viewer.index.entry import key_of
from nemo_gym.viewer.index.fields import fields_in, text_of
from nemo_gym.viewer.index.run_index import never
from nemo_gym.viewer.run_view import RunView

PAGE = 100
MOST_GROUPS = 1000
KINDS = {"never": "low = high AND high < 1", "mixed": "low < high", "always": "low = high AND low >= 1"}
"""The SQL condition of each kind of task. `low` and `high` are its lowest and highest reward. A task without a reward
is not of any kind. Training learns only from mixed tasks, because equal rewards do not have an advantage."""
_VARIANCE = "(AVG(reward * reward) - AVG(reward) * AVG(reward)) * COUNT(reward) / (COUNT(reward) - 1)"
COLUMNS = {
    "rollouts": "COUNT(*)", "scored": "COUNT(reward)", "solved": "COUNT(CASE WHEN reward >= 1 THEN 1 END)",
    "mean": "AVG(reward)", "low": "MIN(reward)", "high": "MAX(reward)", "std": f"MAX(0, {_VARIANCE})",
    "input_tokens": "AVG(input_tokens)", "output_tokens": "AVG(output_tokens)", "seconds": "AVG(seconds)",
    "failed": "SUM(outcome = 'failed')",
}  # fmt: skip
"""The SQL of each number of a group (`Numbers` in api.ts). `std` is the variance, because SQLite may lack `SQRT`."""
NUMBERS = ", ".join(f"{expression} AS {name}" for name, expression in COLUMNS.items())


class TaskOrder(NamedTuple):
    """The kind of tasks to show, and their order."""

    kind: Literal["never", "mixed", "always"] | None = None
    sort: Literal["task", "scored", "solved", "mean", "std", "output_tokens", "seconds", "failed"] = "task"
    order: Literal["asc", "desc"] = "asc"


def tasks_of(
    run: RunView, filter: Filter, order: TaskOrder, offset: int = 0, is_cancelled: Callable[[], bool] = never
) -> Mapping[str, object]:
    """Return a page of the tasks of the selected rollouts, and their number by kind (type `TasksPage` in api.ts)."""
    with run.index.selection(filter, is_cancelled) as (db, selected):
        tasks = f"FROM (SELECT task, {NUMBERS} {selected.clause} GROUP BY 1) AS tasks"
        counts = run.index.kept(db, selected, "tasks", lambda: _counts(db, tasks, selected))
        rows = db.execute(
            f"SELECT *, (SELECT title FROM titles WHERE titles.task = tasks.task) {tasks} WHERE"
            f" {KINDS[order.kind] if order.kind else 1} ORDER BY {order.sort} {order.order} NULLS LAST, task"
            f" LIMIT {PAGE} OFFSET ?",
            (*selected.values, offset),
        )
        shown = [{**_numbers("task", *row), "title": title or ""} for *row, title in rows]
        return {"counts": counts, "offset": offset, "rows": shown}


def groups_of(run: RunView, filter: Filter, by: str, is_cancelled: Callable[[], bool] = never) -> Mapping[str, object]:
    """Return the largest groups of rollouts with the same value of a column or field (type `Groups` in api.ts).

    Raise `UsageError` for an unknown name.
    """
    with run.index.selection(filter, is_cancelled) as (db, selected):
        fields = fields_in(db)
        order = order_of(by, fields, is_descending=False, parameter="by")
        column, kind = "task" if order.is_by_task else order.column, fields[by].kind if by in fields else ""
        there = Selected(selected.tables + order.join, [*selected.conditions, f"{column} IS NOT NULL"]).clause
        (total,) = db.execute(f"SELECT COUNT(DISTINCT {column}) {there}", selected.values).fetchone()
        groups = f"SELECT {column} AS value, {NUMBERS} {there} GROUP BY 1 ORDER BY rollouts DESC, 1"
        rows = db.execute(f"SELECT * FROM ({groups} LIMIT {MOST_GROUPS}) ORDER BY value", selected.values)
        return {"total": total, "rows": [_numbers("value", text_of(row[0], kind), *row[1:]) for row in rows]}


def tools_of(run: RunView, filter: Filter, is_cancelled: Callable[[], bool] = never) -> Mapping[str, object]:
    """Return the tools that the selected rollouts called, those with most failures first (type `Tools` in api.ts)."""
    with run.index.selection(filter, is_cancelled) as (db, selected):
        return run.index.kept(db, selected, "tools", lambda: _tools(db, selected))


def _tools(db: sqlite3.Connection, selected: Selected) -> Mapping[str, object]:
    timed = f"SELECT tool, seconds FROM calls WHERE id IN (SELECT id {selected.clause}) ORDER BY 1, 2"
    by_tool = groupby(db.execute(timed, selected.values), key=itemgetter(0))
    seconds = {tool: [each for _, each in calls] for tool, calls in by_tool}
    rows = db.execute(
        "SELECT key, SUM(rollouts * calls), SUM(rollouts * failed), SUM(rollouts), TOTAL((failed > 0) * rollouts),"
        " COALESCE(MIN(CASE WHEN failed THEN first END), MIN(first)) FROM (SELECT called.key, rollouts, first,"
        " json_extract(called.value, '$[0]') AS calls, json_extract(called.value, '$[1]') AS failed"
        f" FROM (SELECT toolset, COUNT(*) AS rollouts, MIN(id) AS first {selected.clause} GROUP BY 1)"
        " JOIN toolsets ON toolsets.id = toolset, json_each(counts) AS called)"
        f" GROUP BY 1 ORDER BY 3 DESC, 2 DESC, 1 LIMIT {MOST_GROUPS}",
        selected.values,
    )
    return {
        "rows": [
            {
                "name": name, "calls": calls, "failed": failed, "rollouts": rollouts, "failing": int(failing),
                "p95_s": known[math.ceil(0.95 * len(known)) - 1] if (known := seconds.get(name)) else None,
                "timed": len(known or ()), "example": key_of(first)._asdict(),
            }
            for name, calls, failed, rollouts, failing, first in rows
        ]
    }  # fmt: skip


def _counts(db: sqlite3.Connection, tasks: str, selected: Selected) -> Mapping[str, int]:
    sums = ", ".join(f"TOTAL({condition})" for condition in KINDS.values())
    found = db.execute(f"SELECT COUNT(*), {sums} {tasks}", selected.values).fetchone()
    return dict(zip(("all", *KINDS), map(int, found), strict=True))


def _numbers(name: str, *values: Any) -> dict[str, object]:
    row = dict(zip((name, *COLUMNS), values, strict=True))
    return {**row, "std": None if row["std"] is None else math.sqrt(row["std"])}
