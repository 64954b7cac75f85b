"""Run a process, send it one input, and read its output within limits of time and size."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

CHUNK = 65_536
ERROR_TAIL = 2_000
GONE_S = 5.0
"""Seconds that a killed process may take to end on a busy machine."""


class Said(NamedTuple):
    """The output of a process: stdout, the end of stderr, and whether the process timed out."""

    out: bytes
    errors: str
    is_late: bool


class Dialogue:
    """A child process that gets one input, and whose output is read within limits of time and size.

    `hold` blocks, so call it in a thread. This class does not use asyncio's subprocesses, because they may hang
    forever if all tasks are cancelled at once, as at the end of `asyncio.run` (Python before 3.12.5).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_given_up = False

    def hold(
        self, command: Sequence[str], sent: bytes, *, env: Mapping[str, str], most_bytes: int, within_s: float
    ) -> Said:
        """Start the process, write `sent` to its stdin, and return its output. Then kill the process.

        Stop reading when the output ends, when it exceeds `most_bytes`, or after `within_s` seconds. Raise `OSError`
        if the process cannot be started.
        """
        until = time.monotonic() + within_s
        with self._lock:
            if self.is_given_up:
                return Said(b"", "", is_late=False)
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Start a new session, because a signal to the server's process group must not reach the child.
                start_new_session=True,
                env=env,
                cwd="/",
            )
        pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None]
        try:
            return _talk(pipes, memoryview(sent), most_bytes, until)
        finally:
            self._kill()
            for pipe in pipes:
                pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GONE_S)

    def give_up(self) -> None:
        """Kill the process, or prevent its start if it has not started yet. Callable from any thread."""
        with self._lock:
            self.is_given_up = True
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            # Do not kill a process that has already been reaped, because its PID may belong to another process by now.
            if self._process is not None and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)


def _talk(pipes: Sequence[IO[bytes]], sent: memoryview, most_bytes: int, until: float) -> Said:
    stdin, stdout, stderr = (pipe.fileno() for pipe in pipes)
    out, errors = bytearray(), bytearray()
    poll = select.poll()
    poll.register(stdin, select.POLLOUT)
    poll.register(stdout, select.POLLIN)
    poll.register(stderr, select.POLLIN)
    os.set_blocking(stdin, False)
    is_open = {stdout, stderr}
    while is_open and len(out) <= most_bytes and (left_s := until - time.monotonic()) > 0:
        for end, _ in poll.poll(left_s * 1000):
            if end == stdin:
                sent = _sent(stdin, sent)
                if not sent:
                    poll.unregister(stdin)
            elif chunk := os.read(end, CHUNK):
                (out if end == stdout else errors).extend(chunk)
            else:
                poll.unregister(end)
                is_open.remove(end)
        del errors[:-ERROR_TAIL]
    return Said(bytes(out), errors.decode(errors="replace"), is_late=time.monotonic() >= until)


def _sent(stdin: int, message: memoryview) -> memoryview:
    """Send a part of the message and return the rest, which is empty if the process has closed its stdin."""
    try:
        return message[os.write(stdin, message) :]
    except BlockingIOError:
        return message
    except BrokenPipeError:
        return message[:0]
