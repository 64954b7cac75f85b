"""Processes that play the games of a library, and the connections to them. Every wait has a limit."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from nemo_gym import BaseResetResponse, BaseStepResponse, EnvironmentFailed, InvalidTask, starting_dir
from nemo_gym.jsonl import dump_json

SERVE = Path(__file__).parent / "games" / "serve.py"
LibraryName = Literal["included", "textarena", "gem", "skyrl_gym"]
PACKAGES = {"textarena": "textarena==0.7.4", "gem": "gem-llm==0.1.0", "skyrl_gym": "skyrl-gym==0.4.0"}
MOST_BYTES = 2**23
"""The largest observation. Longer ones fit no model."""
CLOSE_S = 5.0
FIXED = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The order of sets, which some games draw from, depends on the first. Threads do not survive a fork."""


class Problem(BaseModel):
    """An error of the library."""

    problem: str
    is_task: bool = False
    is_missing: bool = False


AnswerT = TypeVar("AnswerT", bound=BaseModel)


def opening_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that begins the game of a row."""
    given = row["responses_create_params"]["input"]
    prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given
    empty = {"seed": 0, "env_kwargs": {}, "players": None, "roles": [], "extras": {}}
    return {key: row.get(key, value) for key, value in empty.items()} | {"game": row["game"], "prompt": prompt}


class Seat:
    """The connection to the process of one game."""

    def __init__(self, where: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._where = where
        self._reader, self._writer = reader, writer

    async def begin(self, opening: Mapping[str, Any], within_s: float) -> BaseResetResponse:
        """Begin the game and return the first observation.

        Raise `InvalidTask` if it cannot be played, and `EnvironmentFailed` if it fails or does not reply in time.
        """
        return await self._ask(opening, BaseResetResponse, within_s)

    async def step(self, action: str, within_s: float) -> BaseStepResponse:
        """Make a move. Raise `EnvironmentFailed` if the game fails or does not reply in time."""
        return await self._ask({"action": action}, BaseStepResponse, within_s)

    async def _ask(self, request: Mapping[str, Any], kind: type[AnswerT], within_s: float) -> AnswerT:
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(dump_json(request) + b"\n")
                await self._writer.drain()
                line = await self._reader.readline()
        except TimeoutError:
            raise EnvironmentFailed(f"{self._where}: no reply within {within_s:g} s") from None
        except ConnectionError:
            line = b""
        except ValueError:
            raise EnvironmentFailed(f"{self._where}: an observation has more than {MOST_BYTES:,} bytes") from None
        if not line.endswith(b"\n"):
            raise EnvironmentFailed(f"{self._where}: the process of the game has ended. The server's log may say why")
        return _parsed(line, kind, self._where)

    async def close(self) -> None:
        """End the process of the game, even in the middle of a step."""
        self._writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()


class Library:
    """The process that has imported a library. It is started on first use, and forks a process for each game."""

    def __init__(self, name: LibraryName, python: str | None = None, start_timeout_s: float = 120.0) -> None:
        self.name = name
        self._python = str(starting_dir() / Path(python).expanduser()) if python else sys.executable
        self._start_timeout_s = start_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def seat(self, game: str) -> Seat:
        """Return the connection to a new process. Raise `EnvironmentFailed` if the library cannot be imported."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                await self._fork(theirs)
            except OSError as error:
                ours.close()
                raise EnvironmentFailed(f"{self.name}: no process for another game ({error})") from error
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return Seat(f"{self.name}: {game}", *await asyncio.open_unix_connection(sock=ours, limit=MOST_BYTES))

    async def _fork(self, link: socket.socket) -> None:
        """Fork a process that plays over this socket. Start the library first if it is not running."""
        async with self._starting:
            if self._control is not None:
                # The library may have ended unnoticed, and then the socket reports it.
                with suppress(OSError):
                    socket.send_fds(self._control, [b"1"], [link.fileno()])
                    return
                await self.close()
            await self._start()
            assert self._control is not None
            socket.send_fds(self._control, [b"1"], [link.fileno()])

    async def close(self) -> None:
        """End the process. Those of running games end when their connections are closed."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._control = ours
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self._python, str(SERVE), self.name,
                    stdin=theirs, stdout=asyncio.subprocess.DEVNULL, env={**os.environ, **FIXED},
                )  # fmt: skip
            except OSError as error:
                raise EnvironmentFailed(f"python: '{self._python}' cannot be started: {error}") from error
        try:
            async with asyncio.timeout(self._start_timeout_s):
                line = await asyncio.get_running_loop().sock_recv(ours, 4096)
        except (TimeoutError, ConnectionError) as error:
            await self.close()
            raise EnvironmentFailed(f"{self.name}: not imported within {self._start_timeout_s:g} s") from error
        except BaseException:
            await self.close()
            raise
        try:
            _parsed(line or b'{"problem": "its process has ended"}', BaseResetResponse, self.name)
        except EnvironmentFailed:
            await self.close()
            raise


def _parsed(line: bytes, kind: type[AnswerT], where: str) -> AnswerT:
    try:
        answer = orjson.loads(line)
        problem = Problem.model_validate(answer) if "problem" in answer else None
        if problem is None:
            return kind.model_validate(answer)
    except (orjson.JSONDecodeError, ValidationError) as error:
        text = str(error) if isinstance(error, orjson.JSONDecodeError) else error.errors()[0]["msg"]
        raise EnvironmentFailed(f"{where}: the game's reply is not valid: {text}") from error
    advice = ""
    if problem.is_missing and where in PACKAGES:
        advice = f". Install it: pip install {PACKAGES[where]}, or set `python` to an interpreter that has it"
    raise (InvalidTask if problem.is_task else EnvironmentFailed)(f"{where}: {problem.problem}{advice}")
