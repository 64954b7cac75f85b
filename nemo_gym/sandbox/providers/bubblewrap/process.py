"""The owner's side of one sandbox: its first process, and the commands that it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from nemo_gym.confinement.cgroups import ControlGroup
from nemo_gym.sandbox.providers.base import SandboxError
from nemo_gym.sandbox.providers.bubblewrap.supervisor import HEADER_BYTES

ESCAPED_BYTE = 6
"""A byte of output is at most so many as a JSON text."""
REPLY_GRACE_S = 15.0
"""What a busy machine may take to end a command and to tell, beside the command's own time."""
GOING_S = 5.0
SAID_BYTES = 2_000


class Reply(NamedTuple):
    """How a command ended."""

    is_out_of_time: bool
    code: int
    stdout: str
    stderr: str


class SandboxProcess:
    """A sandbox that runs. What it holds, a control group say, goes with it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        group: ControlGroup | None,
        output_bytes: int,
    ) -> None:
        self._process = process
        self._control = control
        self._group = group
        self._output_bytes = output_bytes

    @classmethod
    async def start(
        cls, command: Sequence[str], settings: Mapping[str, Any], group: ControlGroup | None, output_bytes: int
    ) -> Self:
        """Start it; whether it is there is known when it answers. Raises `OSError` where the program cannot run."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    # Of a server that was told to go each child would hear too.
                    start_new_session=True,
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        with contextlib.suppress(OSError):
            ours.send(json.dumps(settings).encode())
        return cls(process, ours, group, output_bytes)

    @property
    def is_running(self) -> bool:
        """Whether its first process is there."""
        return self._process.returncode is None

    async def run(
        self, command: Sequence[str], env: Mapping[str, str], *, cwd: str | None, timeout_s: float | None
    ) -> Reply:
        """Run a command to its end or its timeout; given up, it is ended. Raises `SandboxError` where all is lost."""
        request = {"act": "run", "command": list(command), "env": dict(env), "cwd": cwd, "timeout_s": timeout_s}
        return await self._asked(request, [], timeout_s)

    async def put(self, file: int, path: str, *, timeout_s: float) -> None:
        """Copy what an open file of this machine holds. Raises `SandboxError` where it cannot be."""
        mode = 0o755 if os.fstat(file).st_mode & 0o100 else 0o644
        request = {"act": "put", "path": path, "mode": mode, "timeout_s": timeout_s}
        _check_copied(await self._asked(request, [file], timeout_s))

    async def get(self, path: str, file: int, *, timeout_s: float) -> None:
        """Copy a file of the sandbox to one of this machine that is open. Raises `SandboxError` where it cannot be."""
        request = {"act": "get", "path": path, "timeout_s": timeout_s}
        _check_copied(await self._asked(request, [file], timeout_s))

    async def _asked(self, request: dict[str, Any], files: list[int], timeout_s: float | None) -> Reply:
        request["output_bytes"] = self._output_bytes
        reader, writer = await self._connected(files)
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + REPLY_GRACE_S):
                message = json.dumps(request).encode()
                writer.write(len(message).to_bytes(HEADER_BYTES, "big") + message)
                await writer.drain()
                size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
                if size > 2 * ESCAPED_BYTE * self._output_bytes + SAID_BYTES:
                    raise SandboxError("the sandbox said more than it may.")
                told = json.loads(await reader.readexactly(size))
        except (OSError, EOFError) as error:
            # Of `TimeoutError`, too, which is an `OSError`: it does not answer.
            raise SandboxError("the sandbox is gone, or does not answer.") from error
        finally:
            writer.close()
        return Reply(told["how"] == "out of time", told["code"], told["stdout"], told["stderr"])

    async def _connected(self, files: list[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.setblocking(False)
                while True:
                    try:
                        socket.send_fds(self._control, [b"c"], [theirs.fileno(), *files])
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.005)
                return await asyncio.open_unix_connection(sock=ours)
            except OSError as error:
                ours.close()
                raise SandboxError("the sandbox is gone.") from error
            except BaseException:
                ours.close()
                raise

    async def last_words(self) -> str:
        """What a sandbox that did not start said; to be asked once it has ended or been stopped."""
        assert self._process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return (await self._process.stderr.read(SAID_BYTES)).decode(errors="replace")
        return ""

    async def stop(self) -> None:
        """End it and all that runs in it."""
        with contextlib.suppress(OSError):
            # Told to the other side, too, where a process forked off this one holds the socket open.
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with contextlib.suppress(TimeoutError):
            # Where there is no namespace, it needs a moment to look for all that it has started.
            async with asyncio.timeout(GOING_S):
                await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._group is not None:
            await asyncio.to_thread(self._group.close)


def _check_copied(reply: Reply) -> None:
    if reply.is_out_of_time:
        raise SandboxError("the file could not be copied in time.")
    if reply.code != 0:
        raise SandboxError(f"the file could not be copied: {reply.stderr.strip()}")


def base_environment(home: str, python_folder: str) -> dict[str, str]:
    """What a command finds set, and nothing of this process's own."""
    path = f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{python_folder}"
    return {"PATH": path, "HOME": home, "USER": "sandbox", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def folder_of(program: str) -> str:
    """The folder in which a program lies."""
    return str(Path(program).parent)
