"""Start, monitor, restart and stop one replica of an inference engine."""

import asyncio
import itertools
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
MAX_LINE = 300
LAST_BYTES, CAUSE_BYTES = 16_384, 262_144
MAX_CAUSE = 1000
ORIGIN = re.compile(r"^(?:\([^()]*\) )?(?:ERROR [-\d]+ [\d:]+ (?:\[[^\]]*\] )?)?")
"""Matches the process and the place that vLLM writes before each line of its log."""
CAUSE = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception)|[\w.-]+: error|ERROR|error): ")
"""Matches a line that names an error: the last one of a Python traceback, or the one about a wrong option."""
FOLLOWS = re.compile(r"Engine core initialization failed|EngineDeadError|cancelled", re.IGNORECASE)
"""Matches errors that have another cause, which the engine has logged before."""
HINT = re.compile(r"\s+For further information visit ")
UNUSABLE = re.compile(r"cannot start '|No module named|No package metadata|ImportError|command not found")
"""Matches errors of a program that is missing or broken."""
REFUSES = "it refuses connections"
PORT_TAKEN = re.compile(r"address already in use|couldn't bind|EADDRINUSE", re.IGNORECASE)
PORT_TRIES = 200
OK = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineSettings:
    """The settings for starting one engine and for waiting until it is ready."""

    name: str
    """The engine's name in logs and error messages."""
    command: Callable[[Place], Sequence[str]]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    """The engine's working directory."""
    log: Path
    secret: str = field(repr=False)
    """The API key, which must not appear in messages."""
    host: str
    ports: range
    """The range from which a free port is chosen."""
    replica: int
    health_path: str
    start_timeout_s: float
    stop_timeout_s: float
    hang_timeout_s: float
    max_restarts: int
    progress: Callable[[str], None]
    """A function that receives the engine's last log line every few seconds while the engine loads."""
    advice: str
    """How to name another program, for the case that this one is missing or broken."""


class Engine:
    """One replica of an inference engine. Its process is stopped when the task that executes `keep_up` ends."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.restarts = 0
        self.port = 0
        self.failure: str | None = None
        """The reason why the engine is not restarted any more, or None."""
        self._changed = asyncio.Event()
        """An event that is set while the engine is ready, and after it has failed permanently."""
        self._process: asyncio.subprocess.Process | None = None
        self._log_begin = 0

    @property
    def url(self) -> str:
        """The base URL of the engine's API. A restart may change its port."""
        return f"http://{self.settings.host}:{self.port}/v1"

    @property
    def is_ready(self) -> bool:
        """Whether the engine has loaded the model and is not known to have failed."""
        return self._changed.is_set() and self.failure is None

    async def wait_until_ready(self) -> None:
        """Wait until the engine is ready. Raise `ModelFailed` if it is not restarted any more or takes too long."""
        longest_s = self.settings.start_timeout_s * (self.settings.max_restarts + 1)
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError as error:
            raise ModelFailed(f"{self.settings.name} is not ready after {longest_s:g} s") from error
        if self.failure is not None:
            raise ModelFailed(self.failure)

    async def has_ended(self, restarts: int, within_s: float) -> bool:
        """Return whether the engine is down, ends within `within_s`, or has a restart count other than `restarts`.

        Its port already refuses connections while its keeper still ends the processes that it has left.
        """
        if self.restarts != restarts or not self.is_ready or self._process is None:
            return True
        process = self._process
        await self._sleep(within_s)
        return process.returncode is not None or await self._trouble() == REFUSES

    async def keep_up(self) -> None:
        """Start the engine and restart it after failures, until it fails too often or this task is cancelled."""
        was_ready = False
        try:
            while True:
                reason = await self._load()
                if reason is None:
                    was_ready = True
                    self._changed.set()
                    reason = await self._watch()
                    self._changed.clear()
                cause = self._cause()
                await self._end()
                # An engine that was never ready probably has a wrong option. Restart it only if its port was taken.
                may_help = was_ready or PORT_TAKEN.search(cause) is not None
                if not may_help or self.restarts >= self.settings.max_restarts:
                    often = f" after {self.restarts} restart{'s' * (self.restarts > 1)}" if self.restarts else ""
                    advice = f" {self.settings.advice}" if UNUSABLE.search(cause) and not was_ready else ""
                    self.failure = (
                        f"{self.settings.name} {reason}{often}: {cause.rstrip('.')}.{advice} "
                        f"Its log is {self.settings.log}"
                    )
                    if was_ready:
                        # Do not log the message if the engine was never ready, because then the startup of this
                        # server fails with that message.
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
        """Start the engine and wait until it is ready. Return the reason for a failure, or None if it is ready."""
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
        logger.info("%s starts at port %d. Its log: %s", self.settings.name, self.port, self.settings.log)
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
                self.settings.progress(self._last_line() or f"{self.settings.name}: {trouble}")
            await self._sleep(POLL_S)
        logger.info("%s is ready at port %d after %.0f s", self.settings.name, self.port, time.monotonic() - began_at)
        return None

    async def _watch(self) -> str:
        """Wait until the engine ends or stops answering, and return which of the two happened."""
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
        """Wait for `seconds`, or until the process ends."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _trouble(self) -> str | None:
        """Return why the health check failed, or None if it passed."""
        path = self.settings.health_path
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                status = await _status_of(self.settings.host, self.port, path)
        except ConnectionRefusedError:
            return REFUSES
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            return f"no answer to {path} ({type(error).__name__})"
        return None if status == OK else f"{path} answers {status}"

    async def _end(self) -> None:
        """Stop the engine if it runs. The keeper process kills all descendants that remain after `stop_timeout_s`."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_timeout_s + 10):
                await process.wait()
        if process.returncode is None:
            # Kill the keeper. The kernel then kills the engine, too, because it was started with PR_SET_PDEATHSIG.
            process.kill()

    def _cause(self) -> str:
        """Return the error with which the engine ended, in one line. If it logged none, return its last line."""
        lines = [ORIGIN.sub("", line) for line in self._lines(CAUSE_BYTES)]
        named = [number for number, line in enumerate(lines) if CAUSE.match(line)]
        if not named:
            return self._last_line() or "it logged nothing"
        begin = next((number for number in reversed(named) if not FOLLOWS.search(lines[number])), named[-1])
        # The details of an error are indented.
        details = itertools.takewhile(lambda line: line[:1].isspace() and not HINT.match(line), lines[begin + 1 :])
        return " ".join(" ".join([lines[begin], *details]).split())[:MAX_CAUSE]

    def _last_line(self) -> str:
        return next(filter(None, reversed(self._lines(LAST_BYTES))), "").strip()[:MAX_LINE]

    def _lines(self, most_bytes: int) -> list[str]:
        """Return the last lines that the engine logged since its last start, with the API key masked."""
        with self.settings.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begin, size - most_bytes))
            text = log.read().decode("utf-8", "replace").replace(self.settings.secret, "****")
        # Progress bars overwrite their line with carriage returns. Keep only the last version of each line.
        return [line.rpartition("\r")[2].rstrip() for line in text.rstrip("\r\n").split("\n")]


async def _status_of(host: str, port: int, path: str) -> int:
    """Return the status code of a GET request. Do not use an HTTP client, because it would log every health check."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        _, status, *_ = (await reader.readuntil(b"\r\n")).split()
        return int(status)
    finally:
        writer.close()


def _free_port(host: str, ports: range) -> int:
    """Return a free port from the range. Raise `OSError` if none of up to `PORT_TRIES` random ports is free."""
    for port in random.sample(ports, min(PORT_TRIES, len(ports))):
        with socket.socket() as trial:
            try:
                trial.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host} from {ports.start} to {ports.stop - 1}")
