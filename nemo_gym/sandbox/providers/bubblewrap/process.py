"""Control one sandbox: start its first process, send it commands and stop it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from nemo_gym.sandbox.confinement.cgroups import ControlGroup
from nemo_gym.sandbox.confinement.supervisor import HEADER_BYTES, Request, Settings
from nemo_gym.sandbox.providers.base import SandboxError

ESCAPED_BYTE = 6
"""The maximum number of bytes that one byte of output takes in a JSON string."""
REPLY_GRACE_S = 15.0
"""Seconds to wait for a reply after the command's timeout, because a busy machine may kill the command late."""
GOING_S = 5.0
SAID_BYTES = 2_000


class Reply(NamedTuple):
    """The result of a command in the sandbox."""

    is_out_of_time: bool
    code: int
    stdout: str
    stderr: str


class SandboxProcess:
    """The first process of a running sandbox. `stop` also removes the control group of the sandbox."""

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
        cls, command: Sequence[str], settings: Settings, group: ControlGroup | None, output_bytes: int
    ) -> Self:
        """Start the process, but do not wait until it accepts commands. Raise `OSError` if it cannot be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    # Start a new session, because a signal to the server's process group must not reach the child.
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
        return self._process.returncode is None

    async def run(
        self, command: Sequence[str], env: Mapping[str, str], *, cwd: str | None, timeout_s: float | None
    ) -> Reply:
        """Run a command until it ends or times out. Raise `SandboxError` if the sandbox is gone.

        Cancelling this call kills the command.
        """
        request = Request(act="run", command=list(command), env=dict(env), cwd=cwd, timeout_s=timeout_s)
        return await self._asked(request, [])

    async def put(self, file: int, path: str, *, timeout_s: float) -> None:
        """Copy an open local file into the sandbox. Raise `SandboxError` if that fails."""
        mode = 0o755 if os.fstat(file).st_mode & 0o100 else 0o644
        request = Request(act="put", path=path, mode=mode, timeout_s=timeout_s)
        _check_copied(await self._asked(request, [file]))

    async def get(self, path: str, file: int, *, timeout_s: float) -> None:
        """Copy a file of the sandbox into an open local file. Raise `SandboxError` if that fails."""
        _check_copied(await self._asked(Request(act="get", path=path, timeout_s=timeout_s), [file]))

    async def listen(self, port: int, *, timeout_s: float) -> socket.socket:
        """Return a socket that listens on a port in the sandbox's network. Raise `SandboxError` if that fails."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                reply = await self._asked(Request(act="listen", port=port, timeout_s=timeout_s), [theirs.fileno()])
            if reply.code != 0 or reply.is_out_of_time:
                raise SandboxError(f"the sandbox cannot listen on port {port}: {reply.stderr.strip()}")
            ours.setblocking(False)
            [listener] = socket.recv_fds(ours, 1, 1)[1]
        return socket.socket(fileno=listener)

    async def _asked(self, request: Request, files: list[int]) -> Reply:
        request["output_bytes"] = self._output_bytes
        timeout_s = request["timeout_s"]
        reader, writer = await self._connected(files)
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + REPLY_GRACE_S):
                message = json.dumps(request).encode()
                writer.write(len(message).to_bytes(HEADER_BYTES, "big") + message)
                await writer.drain()
                size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
                if size > 2 * ESCAPED_BYTE * self._output_bytes + SAID_BYTES:
                    raise SandboxError("the reply of the sandbox exceeds the output limit.")
                reply = json.loads(await reader.readexactly(size))
        except (OSError, EOFError) as error:
            # This also handles the timeout, because `TimeoutError` is an `OSError`.
            raise SandboxError("the sandbox is gone or does not reply.") from error
        finally:
            writer.close()
        return Reply(reply["how"] == "out of time", reply["code"], reply["stdout"], reply["stderr"])

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

    async def startup_errors(self) -> str:
        """Return the stderr of a sandbox that did not start. Call it after the sandbox has ended."""
        assert self._process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return (await self._process.stderr.read(SAID_BYTES)).decode(errors="replace")
        return ""

    async def stop(self) -> None:
        """End all processes of the sandbox and remove its control group."""
        with contextlib.suppress(OSError):
            # Call shutdown() before close(): it reaches the peer even if a fork of this process holds the socket open.
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with contextlib.suppress(TimeoutError):
            # Do not kill the process at once. Without a PID namespace, it must first find and kill its descendants.
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
