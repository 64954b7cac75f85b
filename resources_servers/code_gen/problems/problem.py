"""Generated problems, each with a statement, a reference solution and test inputs."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, NamedTuple

TESTS = 14
TRIES = 60
"""The number of inputs to draw per problem. It exceeds `TESTS`, because duplicates are dropped."""


@dataclass(frozen=True)
class Kind:
    """A type of argument or result: its annotation, and how programs read and print it."""

    annotation: str
    in_input: str
    in_output: str
    read: str
    """The expression that reads a value from `lines`, an iterator over the input."""
    show: str = "print({})"
    """The statement that prints a value."""
    to_text: Callable[[Any], str] = str
    """The function that formats a value for the input."""

    def to_output(self, value: object) -> str:
        """Return the text that `show` prints for a value."""
        with redirect_stdout(io.StringIO()) as printed:
            exec(self.show.format("value"), {"value": value})
        return printed.getvalue()


def _line(values: Sequence[object]) -> str:
    return " ".join(map(str, values))


def _block(rows: Sequence[str]) -> str:
    return "\n".join([str(len(rows)), *rows])


INT = Kind("int", "one line with an integer", "it", "int(next(lines))")
TEXT = Kind("str", "one line of text, which may be empty", "it", "next(lines)")
BOOL = Kind("bool", "one line: yes or no", "yes or no", "next(lines) == 'yes'", "print('yes' if {} else 'no')")
NUMBERS = Kind(
    "list[int]",
    "one line of integers, separated by spaces; it may be empty",
    "its integers in one line, separated by spaces",
    "[int(word) for word in next(lines).split()]",
    "print(*{})",
    _line,
)
WORDS = Kind(
    "list[str]",
    "one line of words, separated by spaces; it may be empty",
    "the words in one line, separated by spaces",
    "next(lines).split()",
    "print(*{})",
    _line,
)
GRID = Kind(
    "list[str]",
    "one line with the number of rows, then one line for each row",
    "its rows, one in each line",
    "[next(lines) for _ in range(int(next(lines)))]",
    "print(*{}, sep='\\n')",
    _block,
)
TABLE = Kind(
    "list[list[int]]",
    "one line with the number of rows, then one line for each row: its integers, separated by spaces",
    "its rows, one in each line: the integers, separated by spaces",
    "[[int(word) for word in next(lines).split()] for _ in range(int(next(lines)))]",
    "for row in {}:\n    print(*row)",
    lambda rows: _block([_line(row) for row in rows]),
)


@dataclass(frozen=True)
class Problem:
    """One problem. `code` defines the function `name`, and `draw` returns the arguments of a test."""

    name: str
    statement: str
    takes: Sequence[tuple[str, Kind]]
    gives: Kind
    code: str
    draw: Callable[[random.Random], Sequence[Any]]
    edges: Sequence[Sequence[Any]] = ()
    """Arguments of edge cases. The tests always contain these cases."""


class Case(NamedTuple):
    """The arguments of one test and the result of the reference solution, both as JSON."""

    arguments: tuple[str, ...]
    result: str


Family = Callable[[random.Random], Problem]
"""A function that draws a problem."""


def cases_of(problem: Problem, chance: random.Random) -> list[Case] | None:
    """Return the tests of a problem, starting with two typical tests that have different results.

    Return None if there are too few tests or different results, or if a program that returns a constant or one of its
    arguments would pass too many of the tests.
    """
    names: dict[str, Any] = {}
    exec(compile(problem.code, f"<{problem.name}>", "exec", dont_inherit=True), names)
    solution = names[problem.name]
    drawn = [*problem.edges, *(problem.draw(chance) for _ in range(TRIES))]
    arguments = list(dict.fromkeys(tuple(json.dumps(each) for each in given) for given in drawn))[:TESTS]
    cases = [Case(given, json.dumps(solution(*map(json.loads, given)))) for given in arguments]
    if not _are_telling(cases, problem.gives):
        return None
    # Move the edge cases from the start to the end, because the first tests are shown as examples.
    cases.reverse()
    cases.insert(1, cases.pop(next(at for at, case in enumerate(cases) if case.result != cases[0].result)))
    return cases


def _are_telling(cases: Sequence[Case], gives: Kind) -> bool:
    (_, most), *_ = Counter(case.result for case in cases).most_common(1)
    results = len({case.result for case in cases})
    echoes = sum(case.result in case.arguments for case in cases)
    fewest = 2 if gives is BOOL else 4
    return len(cases) >= 8 and results >= fewest and most <= 0.75 * len(cases) and echoes <= 0.6 * len(cases)
