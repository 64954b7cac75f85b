"""Write a row for each sample of a task of Inspect.

python responses_api_agents/inspect_agent/prepare.py --task my_tasks.py@my_task --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import ValidationError

from nemo_gym import DataError, RolloutError, run_prepare
from nemo_gym.jsonl import write_rows
from responses_api_agents.inspect_agent.place import InspectPlace
from responses_api_agents.verifiers_agent.prepare import listed_rows


def prepare(output: Path, task: str, split: str | None = None, python: str | None = None) -> Path:
    """Write one row for each sample and return the file's path.

    task: FILE.py@TASK or the name of an installed task, with arguments if it needs some: my_tasks.py@my_task?size=10
    split: must be left out, because tasks of Inspect have no splits
    python: the interpreter that has inspect_ai

    Raises `DataError` if the task cannot be read.
    """
    if split is not None:
        raise DataError(
            f"--split {split}: tasks of Inspect have no splits. Leave it out, or use an argument of the task"
        )
    try:
        write_rows(output, asyncio.run(listed_rows(InspectPlace(task=task, python=python), {"inspect_task": task})))
    except ValidationError as error:
        raise DataError(f"--task {task}: {error.errors()[0]['msg']}") from error
    except RolloutError as error:
        raise DataError(str(error)) from error
    return output


if __name__ == "__main__":
    run_prepare(prepare)
