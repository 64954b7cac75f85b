"""Make rows from the task list of an ORS server. Each has the task's prompt and tools.

python resources_servers/ors/prepare.py --address http://127.0.0.1:8080/my_env --split test --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, RolloutError, run_prepare
from nemo_gym.jsonl import write_rows
from resources_servers.ors.client import Json, Ors, OrsSettings, Refused
from resources_servers.ors.play import OrsTask, Play, content_of

AT_ONCE = 8
PING_S = 10.0


class SplitName(BaseModel):
    name: str


class Listed(BaseModel):
    """The number of a split's tasks, or the tasks."""

    num_tasks: int = 0
    tasks: list[Json] = []


def prepare(
    output: Path, address: str | None = None, split: str | None = None, count: int = 1000, seed: int = 0
) -> Path:
    """Write rows for `count` tasks of a split, or fewer if it ends, and return their path.

    address: the URL of an environment, http://host:port/env_name; by default, the number game of this folder
    split: the server's name of the split; by default, its first one
    seed: the index of the first task

    `ORS_API_KEY` and `ORS_SECRETS` in the process environment are sent to the server, as in a rollout. Raises
    `DataError` if the server does not answer, or if it does not have the split.
    """
    secrets, api_key = os.environ.get("ORS_SECRETS"), os.environ.get("ORS_API_KEY")
    try:
        settings = OrsSettings.model_validate({"address": address, "api_key": api_key, "secrets": secrets})
        # Use a thread, because this one may already run an event loop.
        with ThreadPoolExecutor(1) as pool:
            rows = pool.submit(asyncio.run, _rows(settings, split, range(seed, seed + count))).result()
    except ValidationError as error:
        raise DataError(error.errors(include_input=False)[0]["msg"]) from None
    except RolloutError as error:
        raise DataError(f"{error}. Check that the server runs, and that the address is right.") from error
    write_rows(output, rows)
    return output


async def _rows(settings: OrsSettings, split: str | None, places: range) -> list[Json]:
    ors, gate = Ors(settings), asyncio.Semaphore(AT_ONCE)

    async def row(task: OrsTask) -> Json:
        async with gate:
            play = Play()
            try:
                await play.begin(ors, task, PING_S)
            finally:
                await play.close()
            prompt = [{"role": "user", "content": content_of(play.prompt)}]
            params = {"input": prompt, "tools": play.definitions}
            return {"responses_create_params": params, "ors": task.model_dump()}

    making: list[asyncio.Task[Json]] = []
    try:
        await ors.open()
        making += [asyncio.create_task(row(task)) for task in await _tasks(ors, split, places)]
        return await asyncio.gather(*making)
    finally:
        for each in making:
            each.cancel()
        await asyncio.gather(*making, return_exceptions=True)
        await ors.close()


async def _tasks(ors: Ors, split: str | None, places: range) -> list[OrsTask]:
    names = [each.name for each in await ors.json(list[SplitName], "GET", f"/{ors.env}/splits")]
    name = split or next(iter(names), None)
    if name not in names:
        raise DataError(f"--split {name}: the server's splits are: {', '.join(names) or 'none'}.")
    wait_s, body = ors.settings.setup_timeout_s, {"split": name}
    try:
        known = await ors.json(Listed, "POST", f"/{ors.env}/num_tasks", "", body, within_s=wait_s)
        return [OrsTask(split=name, index=index) for index in places[: max(0, known.num_tasks - places.start)]]
    except Refused:
        # A server may list its tasks instead of counting them.
        listed = await ors.json(Listed, "POST", f"/{ors.env}/tasks", "", body, within_s=wait_s)
        return [OrsTask(task_spec=each) for each in listed.tasks[places.start : places.stop]]


if __name__ == "__main__":
    run_prepare(prepare)
