"""One replica of an engine: started, awaited, watched, restarted after a crash, and stopped."""

import asyncio
import logging
import os
import random
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym import ModelFailed
from responses_api_models.local_vllm_model.commands import Place

KEEPER = Path(__file__).with_name("keeper.py")
HEALTH_TIMEOUT_S = 10.0
POLL_S = 0.5
PROGRESS_S = 5.0
MAX_LINE = 200
TAIL_LINES, TAIL_BYTES = 20, 16_384
PORT_TAKEN = re.compile(r"address already in use|couldn't bind|EADDRINUSE", re.IGNORECASE)
PORT_TRIES = 200
OK = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSettings:
    """How to start an engine, and how long to wait for it."""

    name: str
    """The name in messages."""
    command: Callable[[Place], Sequence[str]]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    """Its working directory."""
    log: Path
    secret: str = field(repr=False)
    """The key, which must not appear in messages."""
    host: str
    ports: range
    """The band of its port."""
    replica: int
    health_path: str
    start_timeout_s: float
    stop_timeout_s: float
    hang_timeout_s: float
    max_restarts: int


class Engine:
    """A replica. `keep_up` runs for as long as it is needed."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.restarts = 0
        self.port = 0
        self.failure: str | None = None
        """Why it is not restarted any more."""
        self._changed = asyncio.Event()
        """Set if it is ready or has failed."""
        self._process: asyncio.subprocess.Process | None = None
        self._log_begin = 0

    @property
    def url(self) -> str:
        """The base URL of its API, which may change with a restart."""
        return f"http://{self.settings.host}:{self.port}/v1"

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return self._changed.is_set() and self.failure is None

    async def wait_until_ready(self) -> None:
        """Wait while it loads. Raise `ModelFailed` if it is not restarted any more."""
        longest_s = self.settings.start_timeout_s * (self.settings.max_restarts + 1)
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError as error:
            raise ModelFailed(f"{self.settings.name} is not ready after {longest_s:g} s") from error
        if self.failure is not None:
            raise ModelFailed(self.failure)

    async def has_ended(self, restarts: int, within_s: float) -> bool:
        """Return whether it ends within this time, or has been restarted more often than `restarts`."""
        if self.restarts != restarts or not self.is_ready or self._process is None:
            return True
        process = self._process
        await self._sleep(within_s)
        return process.returncode is not None

    async def keep_up(self) -> None:
        """Start it and restart it, until it fails too often or this task is cancelled."""
        was_ready = False
        try:
            while True:
                reason = await self._load()
                if reason is None:
                    was_ready = True
                    self._changed.set()
                    reason = await self._watch()
                    self._changed.clear()
                tail = self._tail()
                await self._end()
                # A restart does not fix a wrong option, but another port may be free.
                may_help = was_ready or PORT_TAKEN.search(tail) is not None
                if not may_help or self.restarts >= self.settings.max_restarts:
                    often = f" after {self.restarts} restart{'s' * (self.restarts > 1)}" if self.restarts else ""
                    self.failure = (
                        f"{self.settings.name} {reason}{often}. The last lines of {self.settings.log}:\n{tail}"
                    )
                    if was_ready:
                        # Otherwise the start of this server fails with the same message.
                        logger.error("%s", self.failure)
                    return
                self.restarts += 1
                number, most = self.restarts, self.settings.max_restarts
                logger.warning("%s %s; restart %d of %d", self.settings.name, reason, number, most)
                await asyncio.sleep(min(2.0 ** (self.restarts - 1), 30.0) * random.uniform(0.5, 1.0))
        except OSError as error:
            self.failure = f"{self.settings.name} cannot be started: {error}"
        finally:
            self.failure = self.failure or f"{self.settings.name} was stopped"
            self._changed.set()
            await asyncio.shield(self._end())

    async def _load(self) -> str | None:
        """Start it and wait until it answers. Return why it does not, or None."""
        self.port = _free_port(self.settings.host, self.settings.ports)
        place = Place(self.settings.host, self.port, self.settings.replica)
        self.settings.log.parent.mkdir(parents=True, exist_ok=True)
        with self.settings.log.open("ab") as log:
            self._log_begin = log.tell()
            keeper = [sys.executable, str(KEEPER), str(os.getpid()), f"{self.settings.stop_timeout_s:g}"]
            self._process = await asyncio.create_subprocess_exec(
                *keeper,
                *self.settings.command(place),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.settings.folder,
                env=dict(self.settings.environment),
                start_new_session=True,
            )
        began_at = remind_at = time.monotonic()
        limit_s = self.settings.start_timeout_s
        while (trouble := await self._trouble()) is not None:
            now = time.monotonic()
            if self._process.returncode is not None:
                return f"ended with exit code {self._process.returncode} while it was loading"
            if now - began_at >= limit_s:
                return f"was not ready after {limit_s:g} s ({trouble})"
            if now >= remind_at:
                remind_at = now + PROGRESS_S
                waited = f"{now - began_at:.0f} of {limit_s:g} s"
                line = self._tail(1) or "nothing yet"
                logger.info(
                    "waiting for %s at port %d: %s, %s. Its log: %s",
                    self.settings.name, self.port, waited, trouble, line,
                )  # fmt: skip
            await self._sleep(POLL_S)
        logger.info("%s is ready at port %d after %.0f s", self.settings.name, self.port, time.monotonic() - began_at)
        return None

    async def _watch(self) -> str:
        """Return why it must be restarted: it has ended, or it does not answer any more."""
        assert self._process is not None
        answered_at = time.monotonic()
        while self._process.returncode is None:
            await self._sleep(min(HEALTH_TIMEOUT_S, self.settings.hang_timeout_s / 4))
            trouble = await self._trouble()
            if trouble is None:
                answered_at = time.monotonic()
            elif self._process.returncode is None and time.monotonic() - answered_at > self.settings.hang_timeout_s:
                return f"did not answer for {self.settings.hang_timeout_s:g} s ({trouble})"
        return f"ended with exit code {self._process.returncode}"

    async def _sleep(self, seconds: float) -> None:
        """Wait for this long, or until the process ends."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _trouble(self) -> str | None:
        """Return why it is not ready, or None."""
        path = self.settings.health_path
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                status = await _status_of(self.settings.host, self.port, path)
        except ConnectionRefusedError:
            return "it refuses connections"
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            return f"no answer to {path} ({type(error).__name__})"
        return None if status == OK else f"{path} answers {status}"

    async def _end(self) -> None:
        """End its process group, if it is alive. The keeper kills what is left after `stop_timeout_s`."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_timeout_s + 10):
                await process.wait()
        if process.returncode is None:
            # The kernel then kills the engine, too.
            process.kill()

    def _tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of its log since its last start, without the key."""
        with self.settings.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begin, size - TAIL_BYTES))
            text = log.read().decode("utf-8", "replace").replace(self.settings.secret, "****")
        # Progress bars write many times to the same line.
        written = [line.rpartition("\r")[2].rstrip() for line in text.rstrip("\r\n").split("\n")]
        return "\n".join(line[:MAX_LINE] for line in written[-lines:])


async def _status_of(host: str, port: int, path: str) -> int:
    """Return the status of a GET request. It is asked too often for a client that logs each request."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        _, status, *_ = (await reader.readuntil(b"\r\n")).split()
        return int(status)
    finally:
        writer.close()


def _free_port(host: str, ports: range) -> int:
    """Return a free port of the band. Raise `OSError` if none of those that were tried is free."""
    for port in random.sample(ports, min(PORT_TRIES, len(ports))):
        with socket.socket() as trial:
            try:
                trial.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host} from {ports.start} to {ports.stop - 1}")
