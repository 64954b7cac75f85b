"""Search texts with patterns that came with the data, in a process that can be given up.

A regular expression can take longer than anyone will wait, and nothing stops one that runs in this process: it
holds the interpreter. So each search runs in a child, this same file run as a script, which a watchdog thread
ends when the time is up. It imports the standard library only and starts in some 20 ms, once.
"""

from __future__ import annotations

import faulthandler
import json
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

TIME_LIMIT_S = 5.0
LONGEST_TEXT = 20_000


class PatternFailed(ValueError):
    """A pattern is not a regular expression, or took too long; the message says which and shows it."""


class PatternSearch:
    """Searches texts, one at a time, in one child process that starts with the first search.

    `time_limit_s` bounds one search in seconds. Of a text only the last `longest_text` characters are searched:
    answers stand at the end, and the time of a search may grow with the square of the length.
    """

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S, longest_text: int = LONGEST_TEXT) -> None:
        self.time_limit_s = time_limit_s
        self.longest_text = longest_text
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._end_child: Callable[[], object] = _nothing

    def last_match(self, pattern: str, text: str) -> str | None:
        """What the pattern's last match captures, case ignored; None where nothing matches.

        That is the first group that took part and is not empty, or the whole match of a pattern without groups.
        Matches that capture nothing are passed over. It blocks for up to the time limit (call it in a thread) and
        raises `PatternFailed`.
        """
        question = {"pattern": pattern, "text": text[-self.longest_text :], "time_limit_s": self.time_limit_s}
        with self._turn:
            line = self._ask(json.dumps(question).encode() + b"\n")
        if not line:
            raise PatternFailed(f"the pattern {pattern!r} did not finish within {self.time_limit_s:g} s")
        answer = json.loads(line)
        if "error" in answer:
            raise PatternFailed(f"the pattern {pattern!r} is not a regular expression: {answer['error']}")
        found: str | None = answer["found"]
        return found

    def _ask(self, question: bytes) -> bytes:
        """The child's answer; empty where it ended over the question."""
        if self._child is None or self._child.poll() is not None:
            self._child = self._start()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(question)
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            self._end_child()
        return line

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._end_child = weakref.finalize(self, _end, child)
        return child

    def close(self) -> None:
        """End the child process, if one was started; a later search starts another."""
        with self._turn:
            self._end_child()


def _nothing() -> None:
    """There is no child yet."""


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    with child:
        pass


def _last_capture(pattern: str, text: str) -> str | None:
    found: str | None = None
    for match in re.finditer(pattern, text, re.IGNORECASE):
        captured = next((group for group in match.groups() if group), "") if match.re.groups else match[0]
        found = captured or found
    return found


def _answer_searches() -> None:
    """The child's part: one JSON line in, one out, until the parent closes the pipe."""
    for line in sys.stdin.buffer:
        question = json.loads(line)
        faulthandler.dump_traceback_later(question["time_limit_s"], exit=True)
        answer: dict[str, str | None]
        try:
            answer = {"found": _last_capture(question["pattern"], question["text"])}
        except (re.error, OverflowError, RecursionError) as error:
            answer = {"error": str(error)}
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _answer_searches()
