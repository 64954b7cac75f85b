"""Write a row for each task of a verifiers taskset.

python responses_api_agents/verifiers_agent/prepare.py --taskset my_taskset --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from pydantic import ValidationError

from nemo_gym import DataError, RolloutError, run_prepare
from nemo_gym.jsonl import JsonObject, write_rows
from responses_api_agents.verifiers_agent.episode import items_of
from responses_api_agents.verifiers_agent.link import Worker
from responses_api_agents.verifiers_agent.place import WorkerPlace, WorkerSettings

MOST_TASKS = 100_000


def prepare(output: Path, taskset: str, split: str | None = None, count: int = 100, python: str | None = None) -> Path:
    """Write one row for each task and return the file's path.

    taskset: its module, with settings if it needs some: textarena?game=Hangman-v0
    split: the taskset's own setting `split`
    count: number of rows, if the taskset is endless
    python: the interpreter that has verifiers

    Raises `DataError` if the taskset cannot be read.
    """
    try:
        settings = WorkerSettings(taskset=taskset, split=split, python=python)
        write_rows(output, asyncio.run(listed_rows(settings, {"taskset": taskset}, count)))
    except ValidationError as error:
        raise DataError(f"--taskset {taskset}: {error.errors()[0]['msg']}") from error
    except RolloutError as error:
        raise DataError(str(error)) from error
    return output


async def listed_rows(settings: WorkerPlace, source: JsonObject, count: int = 1) -> list[JsonObject]:
    """Return a row for each task that a worker lists, with the fields of `source`. Raise `DataError` without tasks.

    count: number of tasks, if their set is endless
    """
    worker, rows = await Worker.launch(settings, count), []
    try:
        async with aclosing(worker.rows()) as listed:
            async for each in listed:
                asked = {"input": items_of(each.pop("messages"))}
                rows.append({"responses_create_params": asked, **source, **each})
                if len(rows) > MOST_TASKS:
                    raise DataError(f"{settings.ident} has more than {MOST_TASKS:,} tasks. Limit its own settings")
    finally:
        await worker.end()
    if not rows:
        raise DataError(f"{settings.ident} has no tasks")
    return rows


if __name__ == "__main__":
    run_prepare(prepare)
