"""Run a program such as `docker`, with limits on its time and output, for providers that use a command line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from nemo_gym.sandbox.confinement.supervisor import Kept
from nemo_gym.sandbox.providers.base import (
    LOST,
    LOST_CODE,
    TIMED_OUT,
    TIMED_OUT_CODE,
    SandboxCreateError,
    SandboxError,
    SandboxExecResult,
)

LAST_OUTPUT_S = 0.5
DEFAULT_OUTPUT_BYTES = 4 * 2**20


class Ended(NamedTuple):
    """The result of a program. The return code is negative if a signal ended the program, as in `subprocess`."""

    return_code: int
    stdout: str
    stderr: str
    is_out_of_time: bool = False

    @property
    def message(self) -> str:
        """The end of the program's output, for an error message."""
        return (self.stderr.strip() or self.stdout.strip() or f"exit code {self.return_code}")[-1_000:]

    def as_result(self, *, is_lost: bool = False, stderr: str | None = None) -> SandboxExecResult:
        """Return the result of the sandboxed command that this program ran."""
        errors = self.stderr if stderr is None else stderr
        if self.is_out_of_time:
            return SandboxExecResult(self.stdout, errors, TIMED_OUT_CODE, TIMED_OUT)
        if is_lost:
            return SandboxExecResult(self.stdout, errors, LOST_CODE, LOST)
        code = self.return_code if self.return_code >= 0 else 128 - self.return_code
        return SandboxExecResult(self.stdout, errors, code)


def require_program(program: str, provider: str) -> None:
    """Raise `SandboxCreateError` if the program of a provider is not installed."""
    if shutil.which(program) is None:
        raise SandboxCreateError(
            f"the sandbox provider '{provider}' needs the program `{program}`, which is not on the PATH. Install it, "
            "or choose another provider: 'bubblewrap' needs no daemon and no images."
        )


async def ran(
    words: Sequence[str],
    *,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> Ended:
    """Run a program until it ends. After a timeout or a cancellation, kill its whole process group.

    If stdout or stderr exceeds `DEFAULT_OUTPUT_BYTES`, its middle is omitted. `env` is added to this process's
    environment variables.
    """
    loop = asyncio.get_running_loop()
    transport, watch = await loop.subprocess_exec(
        _Watch,
        *words,
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=stdout if stdout is not None else subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    is_out_of_time = False
    try:
        async with asyncio.timeout(timeout_s):
            await watch.exited.wait()
    except TimeoutError:
        is_out_of_time = True
    finally:
        if transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await watch.exited.wait()
        # Wait for the rest of the output, but not for long: a background process may hold the pipes open forever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_OUTPUT_S):
                await watch.drained.wait()
        transport.close()
    code = transport.get_returncode()
    return Ended(code or 0, watch.outputs[1].as_text(), watch.outputs[2].as_text(), is_out_of_time)


class _Watch(asyncio.SubprocessProtocol):
    """A collector of a program's output. `exited` is set when the program ends, and `drained` when its pipes close."""

    def __init__(self) -> None:
        self.outputs = {1: Kept(DEFAULT_OUTPUT_BYTES), 2: Kept(DEFAULT_OUTPUT_BYTES)}
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Set `drained`, because the process has ended and all its pipes are closed."""
        self.drained.set()


@contextlib.contextmanager
def written_to(target: str | Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file to write to. If the `with` block succeeds, this file replaces the target."""
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise SandboxError(f"{path} is a folder; name the file to write.")
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def opened(source: str | Path) -> IO[bytes]:
    """Open a local file to copy into a sandbox. Raise `SandboxError` if it is not a file."""
    path = Path(source)
    if not path.is_file():
        problem = "it is not a file" if path.exists() else "it does not exist"
        raise SandboxError(f"{path} cannot be copied into a sandbox: {problem}.")
    return path.open("rb")
