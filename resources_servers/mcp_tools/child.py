"""The process of an MCP server: messages over its pipes, within limits of size and time."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from nemo_gym.sandbox.confinement.bubblewrap import SCRATCH, Interpreter, find_bwrap, parents_of, sandboxed
from resources_servers.mcp_tools import confined
from resources_servers.mcp_tools.settings import Sandbox

CHUNK = 65_536
ERROR_TAIL = 1_000
FREE_CHUNKS = 64
"""After so many chunks of stderr it is read slowly, so that a flood does not slow other rollouts down."""
SLOW_READ_S = 0.02
MOST_LINES = 10_000
"""The most lines of output in answer to one request: messages, and others such as a banner."""
GRACE_S = 0.5
"""Seconds for the process to exit after its stdin is closed, after SIGTERM, and after SIGKILL."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")

ToSession = MemoryObjectSendStream[SessionMessage | Exception]
FromSession = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Child:
    """A process in its own group. The SDK's own transport limits neither lines nor stderr."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: str, most_bytes: int) -> None:
        self.command, self.env, self.folder, self.most_bytes = command, env, folder, most_bytes
        self.problem = ""
        """Why the process can no longer be used."""
        self.errors = b""
        """The end of its stderr."""
        self._lines = 0

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start the process and yield its messages. At the end, kill it and its children.

        Raise `OSError` if it cannot be started.
        """
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "limit": self.most_bytes}
        env = {**get_default_environment(), **self.env}
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command, env=env, cwd=self.folder, start_new_session=True, **pipes
            )
        except FileNotFoundError as error:
            # With uvloop, the error does not name the file.
            raise FileNotFoundError(f"the program '{self.command[0]}' was not found. Install it") from error
        to_session, heard = anyio.create_memory_object_stream[SessionMessage | Exception]()
        said, from_session = anyio.create_memory_object_stream[SessionMessage]()
        async with to_session, heard, said, from_session, anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, to_session)
            tasks.start_soon(self._write, process, from_session, to_session)
            tasks.start_soon(self._read_errors, process)
            try:
                yield heard, said
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                tasks.cancel_scope.cancel()

    async def _read(self, process: Process, to_session: ToSession) -> None:
        assert process.stdout is not None
        async with to_session:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while not self.problem:
                    try:
                        line = await process.stdout.readline()
                    except ValueError:
                        self.problem = f"it sent a message of more than {self.most_bytes:,} bytes"
                        return
                    if not line:
                        await _exit_of(process)
                        code = process.returncode
                        self.problem = "it closed its output" if code is None else f"its exit code is {code}"
                        return
                    self._lines += 1
                    if self._lines > MOST_LINES:
                        self.problem = f"it sent more than {MOST_LINES:,} lines in answer to one request"
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except (ValueError, RecursionError):
                        continue
                    await to_session.send(SessionMessage(message))

    async def _write(self, process: Process, from_session: FromSession, to_session: ToSession) -> None:
        assert process.stdin is not None
        try:
            async for each in from_session:
                self._lines = 0
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
        except OSError:
            # Requests must fail at once instead of waiting for an answer.
            to_session.close()

    async def _read_errors(self, process: Process) -> None:
        assert process.stderr is not None
        chunks = 0
        while chunk := await process.stderr.read(CHUNK):
            chunks += 1
            self.errors = (self.errors + chunk)[-ERROR_TAIL:]
            await asyncio.sleep(SLOW_READ_S if chunks > FREE_CHUNKS else 0)


async def _end(process: Process) -> None:
    """End a process and its group. Each wait is bounded."""
    assert process.stdin is not None
    process.stdin.close()
    await _exit_of(process)
    # Signal the group even if its first process has ended, because that of `npx` is only a launcher.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        await _exit_of(process)
    # A process that left the group may keep the pipes open.
    process._transport.close()  # type: ignore[attr-defined]


async def _exit_of(process: Process) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S)


def in_sandbox(command: Sequence[str], folder: str, sandbox: Sandbox) -> list[str]:
    """Return the command that runs a command in a sandbox. Raise `OSError` if bubblewrap is not installed."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise FileNotFoundError("its sandbox needs bubblewrap, and `bwrap` is not installed")
    mounts: list[str] = []
    for path in ("/etc/alternatives", *(NETWORK_FILES if sandbox.has_network else ())):
        mounts += ["--ro-bind-try", path, path]
    for path in sandbox.readable:
        mounts += [*parents_of(path, without=SCRATCH), "--ro-bind", path, path]
    mounts += [*parents_of(folder, without=SCRATCH), "--bind", folder, folder]
    mb, net = sandbox.scratch_mb, sandbox.has_network
    started = sandboxed(bwrap, confined.__file__, Interpreter.base(), scratch_mb=mb, mounts=mounts, has_network=net)
    return [*started, folder, *command]
