"""Compare the mathematical answer in a text with the expected one: exactly where that suffices, else by library."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
from typing import Any, NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.grading.numbers import number_in, same_number
from nemo_gym.grading.text import last_boxed, strip_reasoning, unwrapped
from nemo_gym.grading.workers import WorkerCrashed, WorkerPool, WorkerTimedOut

LIBRARY = "math_verify"
DEADLINE_S = 2.0
MEMORY_LIMIT_BYTES = 4 << 30
LONGEST_TEXT = 20_000
"""Characters: of a longer text only the end is searched, where the answer stands."""
LONGEST_ANSWER = 200
"""Characters of a text that is nothing but an answer."""

LONGEST_EXPRESSION = 2_000
"""Characters: what is longer is no answer to compare, and would only keep a worker busy."""

_HASHES = re.compile(r"^####(.*\S)", re.MULTILINE)
_CONCLUSION = re.compile(
    r"(?:answer|result|total)\b[^.:\n]{0,40}?(?:\bis\b|[:=])[\s*]*([^\n]{1,60}?)[.!*\s]*\Z", re.IGNORECASE
)
_MATHEMATICAL = re.compile(r"[\d$\\]")
"""Without a digit, a dollar or a command there is nothing that the library would find."""
_SPACE = re.compile(r"\s+|\\[,;:! ]")


class Comparison(NamedTuple):
    """What came of comparing an answer with the expected one."""

    is_equal: bool
    extracted: str | None
    """The answer as it was read; None where there was none, or where reading it took too long."""
    undecided: str | None = None
    """Why the library gave no answer; then `is_equal` is False."""


class MathEquality:
    """Compares answers; what exact arithmetic does not decide goes to math-verify, in workers that can be killed.

    `deadline_s` bounds one comparison by the library in seconds; as many run side by side as there are cores, and no
    more than `max_workers`. Workers start with the first comparison that needs them. Raises `LaunchError` where
    math-verify is not installed.
    """

    def __init__(self, *, max_workers: int | None = None, deadline_s: float = DEADLINE_S) -> None:
        if importlib.util.find_spec(LIBRARY) is None:
            raise LaunchError("math-verify compares expressions and is not installed: pip install 'nemo-gym[math]'")
        cores = os.cpu_count() or 1
        size = min(cores, max_workers) if max_workers else cores
        self._workers = WorkerPool(size, deadline_s, prepare=prepare_worker, memory_limit_bytes=MEMORY_LIMIT_BYTES)

    async def compare(self, expected: str, text: str) -> Comparison:
        """Compare the answer in a text with the expected one.

        The answer is what the last `\\boxed{…}` holds, else what follows `####`, else a number that is the whole text
        or its conclusion ("the answer is 72"). Where there is none of these, math-verify looks for it.
        """
        shown = strip_reasoning(text)[-LONGEST_TEXT:]
        answer = _answer_in(shown)
        if answer is not None:
            decided = same_number(expected, answer)
            if decided is None and _bare(expected) == _bare(answer) != "":
                decided = True
            if decided is not None:
                return Comparison(decided, answer)
        if not _MATHEMATICAL.search(shown) or (answer is not None and not _may_equal(expected, answer)):
            return Comparison(False, answer)
        try:
            return await self._workers.run(compare_by_library, expected, shown if answer is None else boxed(answer))
        except (WorkerTimedOut, WorkerCrashed) as error:
            return Comparison(False, answer, undecided=str(error))

    def close(self) -> None:
        """End the workers; a later comparison starts others."""
        self._workers.close()


def boxed(answer: str) -> str:
    """The answer in the form in which math-verify reads it first of all."""
    return rf"\boxed{{{answer}}}"


def prepare_worker() -> None:
    """Import the library and build its grammar, which takes a second or two and is no answer's fault."""
    # It warns of having no time limit of its own: ours is the worker's.
    logging.getLogger(LIBRARY).setLevel(logging.ERROR)
    compare_by_library(r"\frac{1}{2}", r"\boxed{0.5}")


def compare_by_library(expected: str, text: str) -> Comparison:
    """Compare by math-verify, gold first; it may take for ever, so it belongs into a worker."""
    library: Any = importlib.import_module(LIBRARY)
    latex, plain = library.LatexExtractionConfig(), library.ExprExtractionConfig()
    gold = library.parse(boxed(expected), [latex], parsing_timeout=None)
    found = library.parse(text, [plain, latex], parsing_timeout=None)
    if not found:
        return Comparison(False, None)
    return Comparison(bool(library.verify(gold, found, timeout_seconds=None)), str(found[-1]))


def _answer_in(text: str) -> str | None:
    answer = last_boxed(text)
    if answer is not None:
        return answer.strip()
    after_hashes = _HASHES.findall(text)
    if after_hashes:
        return str(after_hashes[-1]).strip()
    if len(text) <= LONGEST_ANSWER and number_in(text):
        return text
    conclusion = _CONCLUSION.search(text[-LONGEST_ANSWER:])
    return conclusion[1] if conclusion and number_in(conclusion[1]) else None


def _may_equal(expected: str, answer: str) -> bool:
    """Whether it is worth the library's time."""
    if not answer or len(answer) > LONGEST_EXPRESSION:
        return False
    return number_in(expected) is None or _MATHEMATICAL.search(answer) is not None


def _bare(text: str) -> str:
    return _SPACE.sub("", unwrapped(text))
