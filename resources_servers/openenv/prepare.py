"""Generate rows from the tasks of an OpenEnv server, or with ascending seeds if it does not list tasks.

python resources_servers/openenv/prepare.py --address ws://127.0.0.1:8000/ws --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nemo_gym import DataError, EnvironmentFailed, run_prepare
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.openenv.demo import NAME, RULES
from resources_servers.openenv.link import Address, Server

LONGEST_ABOUT = 2000
MOST_TASKS = 100_000


def prepare(
    output: Path, address: str | None = None, count: int = 100, seed: int = 0, split: str | None = None
) -> Path:
    """Write one row for each task of a split and return the file's path.

    address: the OpenEnv server; by default, the included number game
    count: number of rows, if the server does not list tasks
    seed: the first seed, if the server does not list tasks
    split: the server's own name of a split, by default its first one

    Raises `DataError` if the server cannot be reached, or does not have the split.
    """
    if address is None:
        write_rows(output, _seeded(NAME, RULES, count, seed))
        return output
    try:
        server = Server(Address.of(address))
    except ValueError as error:
        raise DataError(f"--address: {error}") from error
    try:
        write_rows(output, asyncio.run(_rows(server, count, seed, split)))
    except EnvironmentFailed as error:
        raise DataError(str(error)) from error
    return output


async def _rows(server: Server, count: int, seed: int, split: str | None) -> list[JsonObject]:
    metadata = await server.info("/metadata")
    about = metadata if isinstance(metadata, dict) else {}
    name, description = str(about.get("name") or "OpenEnv"), str(about.get("description") or "")[:LONGEST_ABOUT]
    listed = await server.info("/list_environments")
    path = f"/{quote(str(listed[0]) if isinstance(listed, list) and listed else name, safe='')}"
    splits = await server.info(f"{path}/splits")
    names = [str(each.get("name")) for each in splits or () if isinstance(each, dict)]
    if split is not None and split not in names:
        raise server.failed(f"does not have the split '{split}'. Its splits are: {', '.join(names) or 'none'}")
    if not names:
        return list(_seeded(name, description, count, seed))
    chosen = split or names[0]
    counted = await server.info(f"{path}/num_tasks", {"split": chosen})
    size = counted.get("num_tasks") if isinstance(counted, dict) else None
    if type(size) is not int or not 0 < size <= MOST_TASKS:
        raise server.failed(f"reports {size!r:.50} tasks in the split '{chosen}'. Expected 1 to {MOST_TASKS}")
    return [_row(name, description, {"split": chosen, "index": index}) for index in range(size)]


def _seeded(name: str, about: str, count: int, seed: int) -> Iterator[JsonObject]:
    return (_row(name, about, {"seed": number}) for number in range(seed, seed + count))


def _row(name: str, about: str, reset: dict[str, Any]) -> JsonObject:
    sentence = f" {about.strip().removesuffix('.')}." if about.strip() else ""
    instruction = f"You are in the environment '{name}'.{sentence} Act with the tools until the episode ends."
    return {
        "responses_create_params": {"input": [{"role": "system", "content": instruction}]},
        "environment": name,
        "reset": reset,
    }


if __name__ == "__main__":
    run_prepare(prepare)
