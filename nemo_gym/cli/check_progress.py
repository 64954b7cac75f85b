"""Progress of `ng env check`: one line that changes in a terminal, otherwise a line for a promise that takes long."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, TextIO

from nemo_gym.contract.watching import Step
from nemo_gym.text import visible

FIRST_S = 5.0
"""Seconds after which a promise is reported outside a terminal. Each further report takes twice as long."""
ERASE = "\r\x1b[K"


class CheckProgress:
    """The line that says which promise is being tested, for how long, and what is running."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._promise = ""
        self._next_s = FIRST_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._is_terminal:
            self._stream.write(ERASE)
            self._stream.flush()

    def show(self, step: Step) -> None:
        """Show the progress, if it is due."""
        if self._is_terminal:
            print(end=f"{ERASE}{visible(str(step))}", file=self._stream, flush=True)
            return
        if step.promise != self._promise:
            self._promise, self._next_s = step.promise, FIRST_S
        if step.seconds >= self._next_s:
            self._next_s *= 2
            print(visible(str(step)), file=self._stream, flush=True)
