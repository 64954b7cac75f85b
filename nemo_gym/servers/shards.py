"""Shards: files in which a collector stores full results on its own machine. It returns only short entries."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from nemo_gym.jsonl import Appender, JsonObject, dump_json, line_digest
from nemo_gym.schemas.row import INSTANCE_CONFIG_KEY, PARAMS_KEY, SHARD_KEY, Row, mirror_mask

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_BYTES = 256
"""The maximum size of a value in the short entry of a result: characters of a text, or bytes of a list or object as
JSON. Larger values are left out. The row's identity and the response's fields are exempt."""
OF_A_RESPONSE = ("id", "model", "usage", "status")
RESPONSE_KEY = "response"


def check_folder(folder: Path) -> None:
    """Create the folder of shards. Raise `ValueError` if nothing can be written to it."""
    probe = folder / f".{uuid4().hex}.probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}). Name a folder on this machine's disk"
        ) from error


class Shards:
    """The result files of one collector process. Each collection gets one file in the folder."""

    def __init__(self, folder: Path, hide: Callable[[bytes], bytes]) -> None:
        """`folder` will contain the files. `hide` masks the secrets in each line before the line is written."""
        self._folder = folder
        self._hide = hide
        self._machine = socket.gethostname()
        # Use a random id, because processes on several machines may have the same pid and share the folder.
        self._process = uuid4().hex[:8]
        self._open: dict[str, _Shard] = {}

    async def keep(self, name: str, result: Row) -> JsonObject:
        """Write a result to the disk and return the result's short entry. Raise `WriteFailed` if the disk is full."""
        shard = self._open.get(name)
        if shard is None:
            path = self._folder / f"{name}.{self._machine}.{self._process}.jsonl"
            shard = self._open[name] = _Shard(path, self._hide)
        digest = await shard.add(result.fields)
        return entry_of(result, {"machine": self._machine, "path": str(shard.path), "line": digest})

    def whole(self, result: Row, problem: str) -> JsonObject:
        """Return all fields of a result that could not be stored in a shard, and the `problem`."""
        return {**result.fields, SHARD_KEY: {"machine": self._machine, "problem": problem}}

    def close(self) -> None:
        for shard in self._open.values():
            shard.close()
        self._open.clear()


class _Shard:
    """A file of results. Results that arrive during a sync to the disk share the next sync."""

    def __init__(self, path: Path, hide: Callable[[bytes], bytes]) -> None:
        self.path = path
        self._digest = b""
        self._file = Appender(path, hide=hide, announce=self._measure)
        self._written = 0
        self._synced = 0
        self._syncing = asyncio.Lock()

    async def add(self, result: JsonObject) -> str:
        """Write a result to the disk and return the digest of its line."""
        self._file.write(result)
        digest = self._digest.hex()
        self._written += 1
        number = self._written
        async with self._syncing:
            if self._synced < number:
                written = self._written
                await asyncio.to_thread(self._file.sync)
                self._synced = written
        return digest

    def close(self) -> None:
        self._file.close()

    def _measure(self, line: bytes) -> None:
        self._digest = line_digest(line)


def entry_of(result: Row, shard: JsonObject) -> JsonObject:
    """Return the entry of a result: its short values, and the location of the whole result.

    The entry is enough to count and resume rollouts and to compute metrics: it has the row's identity, the reward,
    numbers, and the usage of the response.
    """
    response = result.response or {}
    entry = {
        key: value
        for key, value in result.fields.items()
        if key not in (PARAMS_KEY, RESPONSE_KEY, INSTANCE_CONFIG_KEY) and _is_short(value)
    }
    entry |= result.identity
    entry[RESPONSE_KEY] = {key: response[key] for key in OF_A_RESPONSE if key in response}
    if result.is_masked:
        mirror_mask(entry)
    entry[SHARD_KEY] = shard
    return entry


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_BYTES
    if isinstance(value, list | dict):
        # Check the number of elements first, because serializing long token arrays is slow.
        return len(value) <= LONGEST_BYTES and len(dump_json(value)) <= LONGEST_BYTES
    return value is None or isinstance(value, int | float)
