"""A cache of model endpoints' replies on disk, for repeated evaluations."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, Self

from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.errors import ConfigError
from nemo_gym.http.model_replies import parsed

logger = logging.getLogger(__name__)

HIT, MISS = b"h", b"m"
_REPEAT = re.compile(r"\d+-(\d+(?:-a\d+)?)")


class Counts(NamedTuple):
    """Numbers of model calls that the cache answered (hits) and did not answer (misses)."""

    hits: int = 0
    misses: int = 0


class ReplyCache:
    """The replies in a folder, which several processes may share.

    The key of a reply covers the endpoint, the whole request (including the model), and the numbers of the rollout's
    repeat and attempt. The repeats of a task therefore stay independent samples, and a retry does not get the reply
    that made the rollout fail. API keys and headers are neither compared nor stored.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder = folder
        self._counts = _counts_file(folder, run_id)

    def opened(self) -> Self:
        """Create the folder. Raise `ConfigError` if files in it cannot be written."""
        try:
            self._counts.parent.mkdir(parents=True, exist_ok=True)
            with self._counts.open("ab"):
                pass
        except OSError as error:
            raise ConfigError(
                f"model_cache: {self._folder} cannot be written ({error.strerror}). Choose another folder."
            ) from error
        return self

    def key_of(self, url: str, body: bytes) -> str:
        """Return the key of a request that belongs to the current rollout."""
        rollout_id = current_rollout_id() or ""
        found = _REPEAT.fullmatch(rollout_id)
        # A row may set its own rollout id, which may lack the number of the repeat. Then use the whole id.
        repeat = found[1] if found else rollout_id
        digest = hashlib.sha256(f"{url}\n{repeat}\n".encode())
        digest.update(body)
        return digest.hexdigest()

    async def read(self, key: str) -> bytes | None:
        """Return the reply with this key, or None. Count the hit or miss; a failure to count is only logged."""
        return await asyncio.to_thread(self._read, key)

    async def write(self, key: str, reply: bytes) -> None:
        """Store a reply unless it reports an error or is not a JSON object. A failure to write it is only logged."""
        await asyncio.to_thread(self._write, key, reply)

    def _read(self, key: str) -> bytes | None:
        try:
            reply = self._path(key).read_bytes()
        except OSError:
            reply = None
        try:
            with self._counts.open("ab", buffering=0) as file:
                file.write(MISS if reply is None else HIT)
        except OSError as error:
            logger.warning("%s: a call cannot be counted (%s)", self._counts, error.strerror)
        return reply

    def _write(self, key: str, reply: bytes) -> None:
        answer = parsed(reply)
        if answer is None or answer.get("error"):
            return
        path = self._path(key)
        partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(reply)
            partial.replace(path)
        except OSError as error:
            logger.warning("%s: a reply of the model cannot be cached (%s)", path, error.strerror)
            partial.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


current_cache: ContextVar[ReplyCache | None] = ContextVar("nemo_gym_reply_cache", default=None)
"""The cache for the calls of the current request to a model server; None if there is no cache."""


def counts_of(folder: Path, run_id: str) -> Counts:
    """Return the hits and misses of all servers of a run so far."""
    try:
        calls = _counts_file(folder, run_id).read_bytes()
    except FileNotFoundError:
        return Counts()
    return Counts(calls.count(HIT), calls.count(MISS))


def _counts_file(folder: Path, run_id: str) -> Path:
    # The file gets one byte per call. Appending one byte is atomic, even if several workers write.
    return folder / "calls" / (run_id or "run")
