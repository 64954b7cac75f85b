"""The progress of a run over time: the numbers of finished and of running rollouts."""

from __future__ import annotations

import math
import sqlite3
from datetime import datetime
from itertools import accumulate

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.run_record import RunRecord
from nemo_gym.rollouts.timeline import MOST_POINTS, Point
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.times import moment_of

CLOCKS_DIFFER_S = 60.0


def recorded_progress(record: RunRecord) -> JsonObject | None:
    """Return the recorded progress over all sessions of a run, or None if fewer than two points were recorded."""
    points: list[Point] = []
    began: datetime | None = None
    for session in (*record.earlier_sessions, record):
        started_at = moment_of(session.started_at)
        if not session.progress or started_at is None:
            continue
        began = began or started_at
        shift = (started_at - began).total_seconds()
        for point in session.progress:
            at_s = shift + point.at_s
            if math.isfinite(at_s) and at_s > (points[-1].at_s if points else -1.0):
                points.append(point._replace(at_s=round(at_s, 3)))
    if len(points) < 2:
        return None
    shown = points[:: -(-len(points) // (MOST_POINTS - 1))]
    if shown[-1] is not points[-1]:
        shown.append(points[-1])
    return {
        "at_s": [point.at_s for point in shown],
        "finished": [point.finished for point in shown],
        "in_flight": [point.running for point in shown],
    }


def progress_of(db: sqlite3.Connection, selected: Selected, record: RunRecord | None) -> JsonObject:
    """Return the progress of the selected rollouts, from the recorded times of their calls.

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
