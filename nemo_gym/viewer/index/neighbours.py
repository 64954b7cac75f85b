"""Find the rollouts before and after a rollout in the filtered and sorted table."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.index.conditions import Order, Selected, Value
from nemo_gym.viewer.index.entry import id_of, key_of


def next_to(
    db: sqlite3.Connection, key: TaskKey, selected: Selected, order: Order, *, is_before: bool
) -> TaskKey | None:
    """Return the selected rollout before or after `key`, or None at either end. `key` itself need not be selected."""
    there = replace(
        selected,
        tables=selected.tables + order.join,
        conditions=list(selected.conditions),
        values=list(selected.values),
    )
    word = "DESC" if order.is_descending != is_before else "ASC"
    if order.is_by_task:
        there.add(f"id {'<' if word == 'DESC' else '>'} ?", id_of(key))
        clause = f"ORDER BY id {word}"
    else:
        _add_beyond(there, order, _value_of(db, key, order), id_of(key), is_before=is_before)
        nulls, tie = ("FIRST", "DESC") if is_before else ("LAST", "ASC")
        clause = f"ORDER BY {order.column} {word} NULLS {nulls}, id {tie}"
    found = db.execute(f"SELECT id {there.clause} {clause} LIMIT 1", there.values).fetchone()
    return key_of(found[0]) if found else None


def _value_of(db: sqlite3.Connection, key: TaskKey, order: Order) -> Value | None:
    tables = f"FROM rollouts{order.join} WHERE id = ?"
    found = db.execute(f"SELECT {order.column} {tables}", (id_of(key),)).fetchone()
    value: Value | None = found[0] if found else None
    return value


def _add_beyond(there: Selected, order: Order, value: Value | None, number: int, *, is_before: bool) -> None:
    """Select only rollouts that come before or after this value and id. Rollouts without a value are last."""
    column, tie = order.column, "<" if is_before else ">"
    if value is None:
        same = f"({column} IS NULL AND id {tie} ?)"
        there.add(f"{column} IS NOT NULL OR {same}" if is_before else same, number)
        return
    sign = "<" if order.is_descending != is_before else ">"
    beyond = f"{column} {sign} ? OR ({column} = ? AND id {tie} ?)"
    there.add(beyond if is_before else f"{beyond} OR {column} IS NULL", value, value, number)
