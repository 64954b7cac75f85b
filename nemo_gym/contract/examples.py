"""Example rollouts of an environment, played by its oracle, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nemo_gym.contract.environment import Environment, Solution
from nemo_gym.contract.play import play
from nemo_gym.data.examples import write_example_metrics
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, write_rows
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.row import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from nemo_gym.servers.base import SimpleServer
from nemo_gym.testing import serving

ROLLOUTS_FILE = "example_rollouts.jsonl"


async def example_rollouts(environment: Environment) -> list[Mapping[str, object]]:
    """Return one graded rollout per example row, played by the oracle. Every call returns the same results.

    Raise `DataError` if there is no oracle, or if playing a row twice gives different results.
    """
    oracle = environment.oracle
    if oracle is None:
        raise DataError(
            f"{environment.folder}: there is no oracle.py to play the examples. Write one with solve(row)."
        )
    first, again = environment.server(), environment.server()
    async with serving(first), serving(again):
        return [
            {
                **row,
                TASK_INDEX_KEY: task,
                ROLLOUT_INDEX_KEY: 0,
                **await _steady(environment, (first, again), oracle.solve(row), task),
            }
            for task, row in enumerate(environment.rows)
        ]


async def write_examples(environment: Environment) -> int:
    """Write `data/example_rollouts.jsonl` and `data/example_metrics.json`, and return the number of rollouts."""
    count = write_rows(environment.folder / "data" / ROLLOUTS_FILE, await example_rollouts(environment))
    write_example_metrics(environment.folder)
    return count


async def _steady(
    environment: Environment, servers: Sequence[SimpleServer], solution: Solution, task: int
) -> Mapping[str, object]:
    rivals = environment.empty_rivals
    first, again = [await _graded(server, environment.rows[task], solution, rivals) for server in servers]
    differing = {name for name, value in first.items() if again.get(name) != value}
    unsteady = sorted(name for name in differing if not isinstance(first[name], float) or name == "reward")
    if unsteady:
        raise DataError(
            f"{environment.folder}: row {task + 1}: {', '.join(unsteady)} changed when the same attempt was played "
            "again. Seed random numbers from the row."
        )
    # Leave out measured values, such as times, because they would change the file every time.
    return {name: value for name, value in first.items() if name not in differing}


async def _graded(server: SimpleServer, row: JsonObject, solution: Solution, rivals: Sequence[Response]) -> JsonObject:
    played = await play(server, row, solution, rivals)
    graded = played.graded.model_dump(mode="json", exclude_unset=True)
    # Leave out the graded request if the row has a request, because example rollouts contain the row's request.
    return {name: value for name, value in graded.items() if name != "responses_create_params" or name not in row}
