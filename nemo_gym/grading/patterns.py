"""Search texts with patterns that came with the data, in processes that can be given up.

A regular expression can take longer than anyone will wait, and nothing stops one that runs in this process: it
holds the interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nemo_gym.grading.workers import WorkerCrashed, WorkerPool, WorkerTimedOut

TIME_LIMIT_S = 5.0
LONGEST_TEXT = 20_000
SIDE_BY_SIDE = 4
"""A search without end must not hold up those of the other rollouts."""


class PatternFailed(ValueError):
    """A pattern is not a regular expression, or took too long; the message says which and shows it."""


class PatternSearch:
    """Searches texts in worker processes, which start with the first search.

    `time_limit_s` bounds one search in seconds. Of a text only the last `longest_text` characters are searched:
    answers stand at the end, and the time of a search may grow with the square of the length.
    """

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S, longest_text: int = LONGEST_TEXT) -> None:
        self.time_limit_s = time_limit_s
        self.longest_text = longest_text
        self._workers = WorkerPool(SIDE_BY_SIDE, time_limit_s)

    def last_match(self, pattern: str, text: str) -> str | None:
        """What the pattern's last match captures, case ignored; None where nothing matches.

        That is the first group that took part and is not empty, or the whole match of a pattern without groups.
        Matches that capture nothing are passed over. It blocks for up to the time limit (call it in a thread) and
        raises `PatternFailed`.
        """
        with self._failures_of(pattern):
            return self._workers.run_blocking(last_capture, pattern, text[-self.longest_text :])

    async def find_last_match(self, pattern: str, text: str) -> str | None:
        """`last_match`, awaited."""
        with self._failures_of(pattern):
            return await self._workers.run(last_capture, pattern, text[-self.longest_text :])

    @contextmanager
    def _failures_of(self, pattern: str) -> Iterator[None]:
        try:
            yield
        except WorkerTimedOut as error:
            raise PatternFailed(f"the pattern {pattern!r} did not finish within {self.time_limit_s:g} s") from error
        except WorkerCrashed as error:
            raise PatternFailed(f"the pattern {pattern!r} found no end: {error}") from error
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternFailed(f"the pattern {pattern!r} is not a regular expression: {error}") from error

    def close(self) -> None:
        """End the worker processes; a later search starts others."""
        self._workers.close()


def last_capture(pattern: str, text: str) -> str | None:
    """The search itself, in the worker."""
    found: str | None = None
    for match in re.finditer(pattern, text, re.IGNORECASE):
        captured = next((group for group in match.groups() if group), "") if match.re.groups else match[0]
        found = captured or found
    return found
