"""Example rollouts of an environment, played by its oracle, and their metrics: what a good line of the results is."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_gym.contract.environment import Environment, Row, Solution
from nemo_gym.contract.play import play
from nemo_gym.data.examples import write_example_metrics
from nemo_gym.errors import DataError
from nemo_gym.jsonl import write_rows
from nemo_gym.schemas.rollout import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from nemo_gym.servers.base import SimpleServer
from nemo_gym.testing import serving

ROLLOUTS_FILE = "example_rollouts.jsonl"
REQUEST_KEY = "responses_create_params"


async def example_rollouts(environment: Environment) -> list[Row]:
    """A line of results for each example row, the same ones every time.

    Raises `DataError` where there is no oracle to play them, or where it is answered differently when it plays again.
    """
    oracle = environment.oracle
    if oracle is None:
        raise DataError(f"{environment.folder}: there is no oracle.py to play the examples.")
    first, again = environment.server(), environment.server()
    async with serving(first), serving(again):
        return [
            {
                **row,
                TASK_INDEX_KEY: task,
                ROLLOUT_INDEX_KEY: 0,
                **await _told(environment, (first, again), oracle.solve(row), task),
            }
            for task, row in enumerate(environment.rows)
        ]


async def write_examples(environment: Environment) -> int:
    """Write `data/example_rollouts.jsonl` and `data/example_metrics.json`, and say how many rollouts there are."""
    count = write_rows(environment.folder / "data" / ROLLOUTS_FILE, await example_rollouts(environment))
    write_example_metrics(environment.folder)
    return count


async def _told(environment: Environment, servers: Sequence[SimpleServer], solution: Solution, task: int) -> Row:
    first, again = [await _graded(server, environment.rows[task], solution) for server in servers]
    differing = {name for name, value in first.items() if again.get(name) != value}
    unsteady = sorted(name for name in differing if not isinstance(first[name], float) or name == "reward")
    if unsteady:
        raise DataError(
            f"{environment.folder}: row {task + 1}: {', '.join(unsteady)}: another value when the same attempt is "
            "played again. Make what the rollout draws follow from its row."
        )
    # What is left was measured, such as a time, and every new one would be a change to the file.
    return {name: value for name, value in first.items() if name not in differing}


async def _graded(server: SimpleServer, row: Row, solution: Solution) -> Row:
    played = await play(server, row, solution)
    graded = played.graded.model_dump(mode="json", exclude_unset=True)
    # The request stands in the results as the row wrote it.
    return {name: value for name, value in graded.items() if name != REQUEST_KEY or name not in row}
