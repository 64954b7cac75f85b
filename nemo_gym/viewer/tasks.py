"""The page of one task, with all of the task's rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fastapi import HTTPException

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.library import RunView
from nemo_gym.viewer.rollout import ITEMS_BYTES, place_of, rollout_json, shown_at

MOST_WITH_ITEMS = 16


def task_json(run: RunView, task: int, given_paths: Sequence[Path]) -> JsonObject:
    """Return a task with its rollouts (type `TaskPage` in api.ts). Raise `HTTPException` 404 if it does not exist."""
    scores = run.index.repeats(task)
    if not scores:
        raise HTTPException(404, f"The run {run.name} has no task {task}.")
    keys = [score.key for score in scores[:MOST_WITH_ITEMS]]
    return {
        "run": run.id,
        "task": task,
        "title": run.index.title(task),
        "repeats": _rollouts_json(run, keys, given_paths),
        "all": [{"repeat": score.key.repeat, "outcome": score.outcome, "reward": score.reward} for score in scores],
    }


def _rollouts_json(run: RunView, keys: Sequence[TaskKey], given_paths: Sequence[Path]) -> list[JsonObject]:
    """Return the rollouts, without those whose record cannot be shown."""
    items_bytes = ITEMS_BYTES // len(keys)
    found: list[JsonObject] = []
    for key in keys:
        # Leave the reason to /api/rollout, because the page requests each repeat that is missing here.
        with suppress(HTTPException, DataError, RecursionError):
            found.append(rollout_json(shown_at(run, place_of(run, key)), given_paths, items_bytes=items_bytes))
    return found
