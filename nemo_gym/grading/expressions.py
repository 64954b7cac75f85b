"""Compare the mathematical answer in a text with the expected one: exactly if possible, else with math-verify."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
from typing import NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.grading.numbers import number_in, same_number
from nemo_gym.grading.text import last_boxed, strip_reasoning, unwrapped
from nemo_gym.grading.workers import WorkerCrashed, WorkerPool, WorkerTimedOut

LIBRARY = "math_verify"
DEADLINE_S = 2.0
MEMORY_LIMIT_BYTES = 4 << 30
LONGEST_TEXT = 20_000
"""Characters. Of a longer text only the end is searched, because the answer is there."""
LONGEST_ANSWER = 200
"""Characters of a text that consists only of an answer."""
LONGEST_EXPRESSION = 2_000
"""Characters. A longer expression is not equal, because comparing it would block a worker."""

_HASHES = re.compile(r"^####(.*\S)", re.MULTILINE)
_CONCLUSION = re.compile(
    r"(?:answer|result|total)\b[^.:\n]{0,40}?(?:\bis\b|[:=])[\s*]*([^\n]{1,60}?)[.!*\s]*\Z", re.IGNORECASE
)
_MATHEMATICAL = re.compile(r"[\d$\\]")
"""A digit, dollar sign or LaTeX command. math-verify finds nothing in a text without one."""
_SPACE = re.compile(r"\s+|\\[,;:! ]")


class Comparison(NamedTuple):
    """The result of comparing an answer with the expected one."""

    is_equal: bool
    extracted: str | None
    """The answer as extracted; None if the text has none or the extraction took too long."""
    undecided: str | None = None
    """The reason why math-verify did not decide; then `is_equal` is False."""


class MathEquality:
    """A comparison of answers by exact arithmetic, or else by math-verify in workers that can be killed.

    `deadline_s` is the time limit of one math-verify comparison in seconds. There is one worker per core, at most
    `max_workers`. Workers start when first needed. The constructor raises `LaunchError` without math-verify.
    """

    def __init__(self, *, max_workers: int | None = None, deadline_s: float = DEADLINE_S) -> None:
        if importlib.util.find_spec(LIBRARY) is None:
            raise LaunchError("math-verify compares expressions and is not installed: pip install 'nemo-gym[math]'")
        cores = os.cpu_count() or 1
        size = min(cores, max_workers) if max_workers else cores
        self._workers = WorkerPool(size, deadline_s, prepare=prepare_worker, memory_limit_bytes=MEMORY_LIMIT_BYTES)

    async def compare(self, expected: str, text: str) -> Comparison:
        """Compare the answer in a text with the expected one.

        The answer is the content of the last `\\boxed{…}`, else the text after `####`, else a number that is the whole
        text or its conclusion ("the answer is 72"). If there is none of these, math-verify searches for it.
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
        """End the workers; a later comparison starts new ones."""
        self._workers.close()


def boxed(answer: str) -> str:
    r"""Return the answer in `\boxed{…}`, which math-verify prefers over other notations."""
    return rf"\boxed{{{answer}}}"


def prepare_worker() -> None:
    """Import math-verify and build its grammar, so that these seconds do not count as time of a comparison."""
    # It warns that it has no time limit; the worker has one.
    logging.getLogger(LIBRARY).setLevel(logging.ERROR)
    compare_by_library(r"\frac{1}{2}", r"\boxed{0.5}")


def compare_by_library(expected: str, text: str) -> Comparison:
    """Compare with math-verify. Call it in a worker, because it may never return."""
    library = importlib.import_module(LIBRARY)
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
    """Return whether a comparison by math-verify could succeed."""
    if not answer or len(answer) > LONGEST_EXPRESSION:
        return False
    return number_in(expected) is None or _MATHEMATICAL.search(answer) is not None


def _bare(text: str) -> str:
    return _SPACE.sub("", unwrapped(text))
