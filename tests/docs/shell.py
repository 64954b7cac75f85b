"""A shell and a Python interpreter that run the blocks of a page, with a bound on every wait."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.05
PYTHON_SESSION = Path(__file__).with_name("python_session.py")


class Result(NamedTuple):
    """A finished command, or one in the background."""

    code: int
    output: Path


class NotInTimeError(Exception):
    """A command or a block did not end in time, or took its interpreter with it."""


class _Interpreter:
    """A process that reads work from its input and answers with a line at a pipe."""

    def __init__(self, argv: Callable[[int], list[str]], folder: Path, env: dict[str, str], output: Path) -> None:
        self._answers, answer_to = os.pipe()
        self.answer_to = answer_to
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                argv(answer_to), cwd=folder, env=env, stdin=subprocess.PIPE, stdout=file, stderr=file,
                pass_fds=[answer_to], start_new_session=True,
            )  # fmt: skip
        os.close(answer_to)
        self._pending = b""

    def ask(self, text: str, timeout_s: float) -> str:
        """Send work and return the answer. Raise `NotInTimeError` if it does not arrive in time."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise NotInTimeError(f"has not ended after {timeout_s:g} s")
            if not (read := os.read(self._answers, 65536)):
                raise NotInTimeError("has ended the page's interpreter")
            self._pending += read
        answer, _, self._pending = self._pending.partition(b"\n")
        return answer.decode()

    def close(self) -> None:
        """End the process and its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        os.close(self._answers)


class Shell(_Interpreter):
    """A bash session: the folder and the variables stay from command to command."""

    def __init__(self, folder: Path, env: dict[str, str], outputs: Path) -> None:
        super().__init__(lambda _: ["bash", "--noprofile", "--norc"], folder, env, outputs / "shell.txt")
        self._outputs = outputs
        self._number = 0

    def run(self, command: str, timeout_s: float) -> Result:
        """Run a command to its end, or start it if it ends with `&`."""
        self._number += 1
        output = self._outputs / f"{self._number}.txt"
        # A command in the background would keep the descriptor open, so commands do not get it.
        hidden = f"{self.answer_to}>&-"
        line = f"eval {shlex.quote(command)} </dev/null >>{shlex.quote(str(output))} 2>&1 {hidden}"
        return Result(int(self.ask(f"{line}\necho $? >&{self.answer_to}\n", timeout_s)), output)


class PythonSession(_Interpreter):
    """A Python process with one namespace for all blocks of a page."""

    def __init__(self, folder: Path, env: dict[str, str], outputs: Path) -> None:
        super().__init__(
            lambda fd: [sys.executable, str(PYTHON_SESSION), str(fd)], folder, env, outputs / "python.txt"
        )

    def run(self, source: str, path: Path, line: int, timeout_s: float) -> str:
        """Run a block and return its traceback, or an empty text."""
        answer = self.ask(json.dumps({"source": source, "path": str(path), "line": line}) + "\n", timeout_s)
        error: str = json.loads(answer)["error"]
        return error
