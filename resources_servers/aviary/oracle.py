"""A perfect attempt at a round of the museum game or a GSM8K question."""

from typing import Any

from nemo_gym.testing import call
from resources_servers.aviary.gsm8k import calculations, final_answer
from resources_servers.aviary.museum import museum_of, plan


def solve(row: dict[str, Any]) -> list[Any]:
    if row.get("task") is not None:
        solution = row["task"]["answer"]
        worked_out = [call("calculate", expression=each) for each in calculations(solution)]
        return [*worked_out, call("submit_answer", answer=final_answer(solution))]
    arguments = {"go": "room", "take": "thing", "put": "thing"}
    return [call(move.tool, **{arguments[move.tool]: move.target}) for move in plan(museum_of(row["task_idx"]))]
