"""Example rollouts of an environment, played by its oracle, and their metrics: what a good line of the results is."""

from __future__ import annotations

from nemo_gym.contract.environment import Environment
from nemo_gym.contract.play import play
from nemo_gym.data.examples import write_example_metrics
from nemo_gym.errors import DataError
from nemo_gym.jsonl import write_rows
from nemo_gym.schemas.rollout import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY

ROLLOUTS_FILE = "example_rollouts.jsonl"


async def write_examples(environment: Environment) -> int:
    """Write `data/example_rollouts.jsonl` and `data/example_metrics.json`, and say how many rollouts there are."""
    if environment.oracle is None:
        raise DataError(f"{environment.folder}: there is no oracle.py to play the examples.")
    rollouts = []
    for task, row in enumerate(environment.rows):
        played = await play(environment.server(), row, environment.oracle.solve(row))
        graded = played.graded.model_dump(mode="json", exclude_unset=True)
        rollouts.append({**row, **graded, TASK_INDEX_KEY: task, ROLLOUT_INDEX_KEY: 0})
    count = write_rows(environment.folder / "data" / ROLLOUTS_FILE, rollouts)
    write_example_metrics(environment.folder)
    return count
