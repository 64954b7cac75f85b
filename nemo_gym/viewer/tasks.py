"""The tasks of a run: how often each was solved, and which of them have repeats with different rewards."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import REPEAT_BITS
from nemo_gym.viewer.index.run_index import never
from nemo_gym.viewer.run_view import RunView

PAGE = 100
KINDS = {"never": "low = high AND high < 1", "mixed": "low < high", "always": "low = high AND low >= 1"}
"""The SQL condition of each kind of task. `low` and `high` are its lowest and highest reward. A task without a reward
is not of any kind. Training learns only from mixed tasks, because equal rewards do not have an advantage."""
_VARIANCE = "(AVG(reward * reward) - AVG(reward) * AVG(reward)) * COUNT(reward) / (COUNT(reward) - 1)"
COLUMNS = {
    "task": f"id >> {REPEAT_BITS}", "rollouts": "COUNT(*)", "scored": "COUNT(reward)",
    "solved": "COUNT(CASE WHEN reward >= 1 THEN 1 END)", "mean": "AVG(reward)", "low": "MIN(reward)",
    "high": "MAX(reward)", "std": f"MAX(0, {_VARIANCE})", "input_tokens": "AVG(input_tokens)",
    "output_tokens": "AVG(output_tokens)", "seconds": "AVG(seconds)", "failed": "SUM(outcome = 'failed')",
}  # fmt: skip
"""The SQL of each column of a task (`TaskRow` in api.ts). `std` is the variance, because SQLite may lack `SQRT`."""
PER_TASK = ", ".join(f"{expression} AS {name}" for name, expression in COLUMNS.items())


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
        tasks = f"FROM (SELECT {PER_TASK} {selected.clause} GROUP BY 1) AS tasks"
        counts = run.index.kept(db, selected, "tasks", lambda: _counts(db, tasks, selected))
        rows = db.execute(
            f"SELECT *, (SELECT title FROM titles WHERE titles.task = tasks.task) {tasks} WHERE"
            f" {KINDS[order.kind] if order.kind else 1} ORDER BY {order.sort} {order.order} NULLS LAST, task"
            f" LIMIT {PAGE} OFFSET ?",
            (*selected.values, offset),
        )
        return {"counts": counts, "offset": offset, "rows": [_row(*row) for row in rows]}


def _counts(db: sqlite3.Connection, tasks: str, selected: Selected) -> Mapping[str, int]:
    sums = ", ".join(f"TOTAL({condition})" for condition in KINDS.values())
    found = db.execute(f"SELECT COUNT(*), {sums} {tasks}", selected.values).fetchone()
    return dict(zip(("all", *KINDS), map(int, found), strict=True))


def _row(*values: Any) -> Mapping[str, object]:
    row = dict(zip((*COLUMNS, "title"), values, strict=True))
    return {**row, "std": None if row["std"] is None else math.sqrt(row["std"]), "title": row["title"] or ""}
