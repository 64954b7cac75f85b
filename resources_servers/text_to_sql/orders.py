"""Find the `ORDER BY` clauses of a query, and break the ties that they leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Match an unclosed `[` or `/*` up to the end of the text, because a failed search from each would take quadratic time.
_QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*(?:\]|\Z)|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))""", re.DOTALL
)
_TOKEN = re.compile(r"\bover\s*\(|\bwindow\s+\w+\s+as\s*\(|[();]|\border\s+by\b|\blimit\b", re.IGNORECASE)


class _Clause(NamedTuple):
    """An `ORDER BY` clause outside of window definitions."""

    end: int
    """The index in the query at which another term of the clause can be inserted."""
    is_outer: bool
    """Whether the clause is outside of parentheses."""


def is_ordered(sql: str) -> bool:
    """Return whether a query has an `ORDER BY` outside of parentheses, strings and comments."""
    return any(clause.is_outer for clause in _clauses(sql))


def break_ties(sql: str, width: int) -> tuple[str, str]:
    """Return a query in two forms that sort tied rows in opposite ways.

    The outer `ORDER BY` also sorts by all columns of the result, whose number is `width`. So the two forms have equal
    results if and only if ties do not affect the query's result. The `ORDER BY` of a subquery also sorts by the
    subquery's first column.
    """
    clauses = list(_clauses(sql))
    return _sorted_further(sql, clauses, width, ""), _sorted_further(sql, clauses, width, " DESC")


def _sorted_further(sql: str, clauses: Iterable[_Clause], width: int, direction: str) -> str:
    parts: list[str] = []
    start = 0
    for clause in clauses:
        parts.append(sql[start : clause.end])
        columns = range(1, (width if clause.is_outer else 1) + 1)
        # A column may have a collation in which different texts are equal.
        parts += [f", {column} COLLATE BINARY{direction} " for column in columns]
        start = clause.end
    return "".join([*parts, sql[start:]])


def _clauses(sql: str) -> Iterator[_Clause]:
    plain = _QUOTED.sub(_blank, sql).rstrip()
    # For each open parenthesis: whether it belongs to a window, and whether it has an `ORDER BY` that has not ended.
    levels = [(False, False)]
    for token in _TOKEN.finditer(plain):
        word = token[0].casefold()
        is_window, is_open = levels[-1]
        if word.startswith("order"):
            levels[-1] = (is_window, not is_window)
        elif word.endswith("("):
            levels.append((word != "(", False))
        else:
            if is_open:
                yield _Clause(token.start(), len(levels) == 1)
                levels[-1] = (is_window, False)
            if word == ")" and len(levels) > 1:
                levels.pop()
    if levels[-1][1]:
        yield _Clause(len(plain), len(levels) == 1)


def _blank(quoted: re.Match[str]) -> str:
    return (" " if quoted["comment"] else "?") * len(quoted[0])
