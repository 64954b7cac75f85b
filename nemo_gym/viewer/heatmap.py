"""Rewards by task and repeat, with neighbouring tasks grouped if there are many."""

from __future__ import annotations

from nemo_gym.jsonl import JsonObject

MOST_ROWS = 200
MOST_REPEATS = 64


class Heatmap:
    """The cells of a heat map, filled in the order of tasks."""

    def __init__(self, tasks: int) -> None:
        """Choose the number of tasks per row so that `tasks` tasks fill at most `MOST_ROWS` rows."""
        self._size = max(1, -(-tasks // MOST_ROWS))
        self._tasks: list[JsonObject] = []
        self._latest: int | None = None
        self._repeats = 0
        # For each group and repeat, the sum and the number of rewards and the number of failures.
        self._cells: list[list[list[float]]] = []

    def add(self, task: int, repeat: int, reward: float | None, *, is_failed: bool) -> None:
        """Add a rollout. Rollouts must be added in the order of their tasks."""
        if task != self._latest:
            self._latest = task
            if not self._tasks or self._tasks[-1]["count"] == self._size:
                self._tasks.append({"first": task, "count": 0})
                self._cells.append([])
            self._tasks[-1]["count"] += 1
        if repeat >= MOST_REPEATS:
            return
        row = self._cells[-1]
        while len(row) <= repeat:
            row.append([0.0, 0, 0])
        cell = row[repeat]
        if reward is not None:
            cell[0] += reward
            cell[1] += 1
        elif is_failed:
            cell[2] += 1

    def as_json(self) -> JsonObject:
        """Return the heat map as the JSON object that `viewer/src/api.ts` defines."""
        repeats = max(map(len, self._cells), default=0)
        cells = [[_shown(cell) for cell in row] + [None] * (repeats - len(row)) for row in self._cells]
        return {"tasks": self._tasks, "repeats": repeats, "cells": cells}


def _shown(cell: list[float]) -> float | str | None:
    total, rewards, failures = cell
    return total / rewards if rewards else "failed" if failures else None
