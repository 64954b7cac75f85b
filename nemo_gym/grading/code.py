"""Grade a program by its tests: by its output, its function's results, or the verdict of a check."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from typing import NamedTuple

from nemo_gym.errors import InvalidTask
from nemo_gym.grading.confined import ConfinedPython, Program, Trial

SPARE_OUTPUT_BYTES = 65_536
SHOWN_CHARACTERS = 500

# The quantifiers are possessive (`*+`), because backtracking over a line that is almost a fence takes cubic time.
_FENCE = re.compile(r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`]*+)[^\n`]*+$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")


_LEADING_ZERO = re.compile(r"[+-]?0\d")
"""The beginning of a word such as 0010, which is a code and not a number."""


class TestResult(IntEnum):
    """The reason why a test did not pass."""

    __test__ = False

    NOT_RUN = -1
    WRONG = -2
    OUT_OF_TIME = -3
    ERROR = -4


@dataclass(frozen=True)
class CodeTests:
    """The tests of a program: an expected output for each input, or a check.

    If `function` is None, the program reads an input from stdin and prints the output. Otherwise the function is
    called: each line of an input is one argument as JSON, and the output is the returned value as JSON. `check` is
    code that calls the function and contains assertions. `preamble` is code with the task's imports and helpers. It
    runs before the program and before the check.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    function: str | None = None
    check: str | None = None
    preamble: str = ""


class FirstFailure(NamedTuple):
    """The first test that did not pass, and the reason. Long texts are truncated."""

    test: int
    error_code: int
    error_message: str
    input: str
    output: str
    expected: str


class CodeGrade(NamedTuple):
    """The results of a program's tests: True or a `TestResult` for each, and the seconds that all took together."""

    results: list[bool | int]
    seconds: float
    first_failure: FirstFailure | None

    @property
    def is_passed(self) -> bool:
        """Whether there was at least one test, and every test passed."""
        return bool(self.results) and all(each is True for each in self.results)


def last_code_block(text: str, languages: Sequence[str] = ()) -> str | None:
    """Return the content of the last fenced code block that is closed and not empty, or None.

    If a block is marked with one of `languages`, only such blocks count, because others show commands or outputs. An
    unmarked block has the language "". Otherwise, unmarked blocks count, or else all blocks.
    """
    found, rank, opening = None, 0, None
    for line in _FENCE.finditer(text):
        if opening is None:
            opening = line
        elif line["fence"].startswith(opening["fence"]) and not line["language"]:
            # Remove the indentation that a block in a Markdown list has.
            inside = textwrap.dedent(text[opening.end() : line.start()]).strip("\n")
            language = opening["language"].strip("{}.").casefold()
            block_rank = 2 if language in languages else 0 if language and languages else 1
            if inside.strip() and block_rank >= rank:
                found, rank = inside, block_rank
            opening = None
    return found


async def grade_code(
    code: str, tests: CodeTests, python: ConfinedPython, *, trial_s: float, total_s: float
) -> CodeGrade:
    """Run a program's tests in one sandbox, with `trial_s` seconds for each and `total_s` for all.

    A program cannot forge its verdict: expected outputs stay outside the sandbox, and a check runs in a separate
    process. After a test has timed out, the remaining tests are not run. Raise `EnvironmentFailed` if the program
    cannot be confined or the sandbox does not start, and `InvalidTask` if the check ends its process.
    """
    sources = [tests.preamble, code] if tests.preamble else [code]
    program = Program(
        sources,
        tests.inputs,
        [_allowed_bytes(output) for output in tests.outputs],
        tests.function,
        tests.check,
        tests.preamble,
    )
    ended = await python.run(program, trial_s=trial_s, total_s=total_s)
    # Grade in a thread, because comparing long outputs would block the event loop.
    return await asyncio.to_thread(_graded, ended, tests)


def _allowed_bytes(expected: str) -> int:
    """Return the output limit in bytes.

    The limit is rounded, because a program can measure it and must not learn the length of the expected output.
    """
    return (2 * len(expected.encode(errors="replace")) // SPARE_OUTPUT_BYTES + 2) * SPARE_OUTPUT_BYTES


class _Verdict(NamedTuple):
    result: bool | int
    """True, or the number of a `TestResult`."""
    why: str = ""


def _graded(ended: list[Trial], tests: CodeTests) -> CodeGrade:
    results: list[bool | int] = []
    first: FirstFailure | None = None
    for number, trial in enumerate(ended):
        is_check = tests.check is not None
        given, expected = ("", "") if is_check else (tests.inputs[number], tests.outputs[number])
        if trial.how != "finished":
            result, why = _not_finished(trial)
        else:
            result, why = _checked(trial) if is_check else _compared(trial.output, expected, tests.function)
        results.append(result)
        if result is not True and first is None:
            shown = map(_shown, (given, "" if is_check else trial.output, expected))
            first = FirstFailure(number, int(result), why, *shown)
    return CodeGrade(results, sum(trial.seconds for trial in ended), first)


def _compared(output: str, expected: str, function: str | None) -> _Verdict:
    is_same = same_values(output, expected) if function else same_output(output, expected)
    return _Verdict(True) if is_same else _Verdict(int(TestResult.WRONG), "wrong answer")


def _checked(trial: Trial) -> _Verdict:
    found = json.loads(trial.output)
    if found["verdict"] == "passed":
        return _Verdict(True)
    if found["verdict"] == "exited":
        # The program cannot cause this: its own `SystemExit` arrives in the check as a `RuntimeError`.
        raise InvalidTask(
            f"check: it ends its process ({found['why']}), so it does not have a verdict. Use assertions instead of "
            "sys.exit or unittest.main."
        )
    is_wrong, why = found["verdict"] == "wrong", found["why"]
    if trial.error and not is_wrong:
        why += f"; stderr: {trial.error[-SHOWN_CHARACTERS:]}"
    return _Verdict(int(TestResult.WRONG if is_wrong else TestResult.ERROR), why)


def _not_finished(trial: Trial) -> _Verdict:
    result = {
        "out of time": TestResult.OUT_OF_TIME,
        "not run": TestResult.NOT_RUN,
        "too much output": TestResult.WRONG,
    }.get(trial.how, TestResult.ERROR)
    return _Verdict(int(result), f"{trial.how}: {trial.error[-SHOWN_CHARACTERS:]}" if trial.error else trial.how)


def same_output(printed: str, expected: str) -> bool:
    """Return whether the lines are equal. Extra spaces are ignored, and 1.50 equals 1.5, but 010 is not 10."""
    ours, theirs = (text.strip().split("\n") for text in (printed, expected))
    return len(ours) == len(theirs) and all(
        left.strip() == right.strip() or _same_words(left.split(), right.split())
        for left, right in zip(ours, theirs, strict=True)
    )


def _same_words(ours: list[str], theirs: list[str]) -> bool:
    return len(ours) == len(theirs) and all(
        left == right or _same_number(left, right) for left, right in zip(ours, theirs, strict=True)
    )


def _same_number(left: str, right: str) -> bool:
    is_text = _LEADING_ZERO.match(left) or _LEADING_ZERO.match(right)
    if is_text or not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
        return False
    try:
        return Decimal(left) == Decimal(right)
    except InvalidOperation:
        return False


def same_values(returned: str, expected: str) -> bool:
    """Return whether two texts are valid JSON with equal values."""
    try:
        return bool(json.loads(returned) == json.loads(expected))
    except (ValueError, RecursionError):
        return False


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
