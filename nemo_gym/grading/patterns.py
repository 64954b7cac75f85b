"""Search texts with regular expressions from a dataset, in processes that can be killed.

The search for a regular expression can take hours. It holds the interpreter lock, so its own process cannot stop it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nemo_gym.grading.workers import WorkerCrashed, WorkerPool, WorkerTimedOut

TIME_LIMIT_S = 5.0
LONGEST_TEXT = 20_000
SIDE_BY_SIDE = 4
"""The maximum number of simultaneous searches. More than one, so that a slow search does not delay all others."""


class PatternFailed(ValueError):
    """The error for a pattern that is not a valid regular expression, takes too long, or crashes its worker process.

    The message shows the pattern.
    """


class PatternSearch:
    """A runner of regex searches in worker processes, which start with the first search.

    `time_limit_s` is the timeout of one search in seconds. Only the last `longest_text` characters of a text are
    searched, because answers are at the end and the time of a search can grow with the square of the length.
    """

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S, longest_text: int = LONGEST_TEXT) -> None:
        self.time_limit_s = time_limit_s
        self.longest_text = longest_text
        self._workers = WorkerPool(SIDE_BY_SIDE, time_limit_s)

    def last_match(self, pattern: str, text: str) -> str | None:
        """Return the text that the pattern's last match captures, or None if there is none. Case is ignored.

        The captured text is the first group that is not empty, or the whole match if the pattern has no groups. A
        match that captures nothing is skipped. This blocks for up to the timeout, so call it in a thread. Raises
        `PatternFailed`.
        """
        with self._failures_of(pattern):
            return self._workers.run_blocking(last_capture, pattern, text[-self.longest_text :])

    async def find_last_match(self, pattern: str, text: str) -> str | None:
        """Do the same as `last_match`, without blocking."""
        with self._failures_of(pattern):
            return await self._workers.run(last_capture, pattern, text[-self.longest_text :])

    async def matches_whole(self, pattern: str, text: str, *, keeps_case: bool = False) -> bool:
        """Return whether the pattern matches the whole text. Raises `PatternFailed`.

        A text longer than `longest_text` does not match.
        """
        if len(text) > self.longest_text:
            return False
        with self._failures_of(pattern):
            return await self._workers.run(is_full_match, pattern, text, keeps_case)

    @contextmanager
    def _failures_of(self, pattern: str) -> Iterator[None]:
        try:
            yield
        except WorkerTimedOut as error:
            raise PatternFailed(f"the pattern {pattern!r} did not finish within {self.time_limit_s:g} s") from error
        except WorkerCrashed as error:
            raise PatternFailed(f"the pattern {pattern!r} crashed its worker: {error}") from error
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternFailed(f"the pattern {pattern!r} is not a regular expression: {error}") from error

    def close(self) -> None:
        """Kill the worker processes. A later search starts new ones."""
        self._workers.close()


def last_capture(pattern: str, text: str) -> str | None:
    """Do the search of `PatternSearch.last_match`. This function runs in a worker process."""
    found: str | None = None
    for match in re.finditer(pattern, text, re.IGNORECASE):
        captured = next((group for group in match.groups() if group), "") if match.re.groups else match[0]
        found = captured or found
    return found


def is_full_match(pattern: str, text: str, keeps_case: bool) -> bool:
    """Do the search of `PatternSearch.matches_whole`. This function runs in a worker process."""
    return re.fullmatch(pattern, text, 0 if keeps_case else re.IGNORECASE) is not None
