r"""Write inequalities, set-builders and intervals in one notation: `x > 2` and `\{x \mid x > 2\}` as `(2,\infty)`."""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 300
"""The maximum number of characters. A longer text is not treated as a set."""

RELATIONS = {"≤": "leqslant|leq|le", "≥": "geqslant|geq|ge", "<": "lt", ">": "gt", "≠": "neq|ne"}
"""Each relation with the names of its LaTeX commands, as alternatives for a regex."""
JUNCTIONS = {"∨": "lor|vee", "∧": "land|wedge"}
"""Each logical sign with the names of its LaTeX commands."""

_SAME = (
    (r"\\left|\\right|\\displaystyle|\\[,;:! ]|\\q?quad(?![A-Za-z])|~|\$", ""),
    (r"\\(?:text|mathrm|mbox)\s*\{\s*(or|and)\s*\}", r" \1 "),
    *((rf"\\(?:{names})(?![A-Za-z])", sign) for sign, names in (RELATIONS | JUNCTIONS).items()),
    ("<=", "≤"),
    (">=", "≥"),
    ("!=", "≠"),
    (r"\\cup(?![A-Za-z])|∪|∨", " or "),
    ("∧", " and "),
    (r"\\cap(?![A-Za-z])", "∩"),
    (r"\\in(?![A-Za-z])", "∈"),
    (r"\\[lr]?vert(?![A-Za-z])", "|"),
    (r"\\(?:varnothing|emptyset)(?![A-Za-z])|\\O(?![A-Za-z])|\\\{\s*\\\}|\{\s*\}|∅", r"\\emptyset"),
    (r"(?i)\A\W*(?:\\text\s*\{)?\s*no\s+(?:real\s+)?solutions?\W*\Z", r"\\emptyset"),
    (r"(?i)\A\W*(?:\\text\s*\{)?\s*all\s+real(?:s|\s+numbers)\W*\Z", r"(-\\infty,\\infty)"),
    (r"\\mathbb\s*\{?R\}?|\\R(?![A-Za-z])|\\Reals|ℝ", r"(-\\infty,\\infty)"),
    (r"\+\s*\\infty|∞", r"\\infty"),
)
_SPELLINGS = [(re.compile(pattern), spelling) for pattern, spelling in _SAME]
_NAME = r"(?:\\?[A-Za-z]+|[A-Za-z]_\{?\w\}?)(?:\([A-Za-z]\))?"
_VALUE = r"[^<>≤≥≠=|,]+?"
_TERM = r"[^<>≤≥≠=|,+-]+?"
_REALS = r"\(-\\infty,\\infty\)"
_BUILDER = re.compile(rf"\\?\{{\s*({_NAME})\s*(?:∈\s*{_REALS}\s*)?(?:\\mid|\||:)((?:(?!\\\{{).)*?)\\?\}}\Z", re.DOTALL)
_MEMBER = re.compile(rf"({_NAME})\s*∈(.*)", re.DOTALL)
_OR = re.compile(r"\s+or\s+")
_AND = re.compile(rf"\s+and\s+|∩|,(?=\s*{_NAME}\s*≠)")
_INTERVAL = re.compile(r"([(\[\]])([^()\[\]]*(?:\([^()]*\)[^()\[\]]*)*,[^,]*)([)\[\]])", re.DOTALL)
_CHAIN = re.compile(rf"({_VALUE})\s*([<>≤≥])\s*({_NAME})\s*([<>≤≥])\s*({_VALUE})")
_BOUND = re.compile(rf"({_NAME})\s*([<>≤≥])\s*({_VALUE})")
_BOUND_LEFT = re.compile(rf"({_VALUE})\s*([<>≤≥])\s*({_NAME}|\|[^|]*\|)")
_DISTANCE = re.compile(
    rf"\|\s*(?:({_TERM})\s*([+-])\s*)?({_NAME})\s*(?:([+-])\s*({_TERM})\s*)?\|\s*([<>≤≥])\s*({_VALUE})"
)
_OTHER = re.compile(rf"({_NAME})\s*≠\s*([^<>≤≥≠=|]+?)")
_WITHOUT = re.compile(rf"{_REALS}\s*(?:\\setminus|\\backslash|\\|-)\s*\\?\{{([^{{}}]+?)\\?\}}")
_SOLUTION = re.compile(r"([A-Za-z])\s*=\s*([^=]+?)")
_LISTED = re.compile(r"\s+(?:or|and)\s+|,(?=\s*[A-Za-z]\s*=)")
_VALUES = re.compile(r"\\?\{(?:(?!\\mid|\\\{)[^<>≤≥≠∈|:])*\\?\}")
_PAIR = re.compile(rf"(?:{_NAME}\s*[=∈]\s*)?\\?\{{?\s*(?:\\pm|±)[^,]*")
_MIRRORED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")


class Intervals(NamedTuple):
    """A set of real numbers in LaTeX, made of intervals, and the name of its variable, if any."""

    latex: str
    name: str | None = None

    def can_equal(self, other: Intervals) -> bool:
        return self.name is None or other.name is None or self.name == other.name


def as_intervals(text: str) -> Intervals | None:
    r"""Return a set of real numbers in the notation of intervals, or None for any other text.

    Accepts intervals, `\emptyset`, `\mathbb{R}` also without some values, inequalities of one variable with constant
    bounds such as `x > 2` and `|x - 1| < 2`, set-builders of them, and several of them joined by `\cup`, `\cap`, "or"
    or "and". Other inequalities, such as `2x > 4`, may only repeat the question.
    """
    if len(text) > LONGEST:
        return None
    plain = _in_one_spelling(text)
    named = _BUILDER.fullmatch(plain) or _MEMBER.fullmatch(plain)
    unions: list[str] = []
    names = {named[1]} if named else set()
    is_finite = True
    for alternative in _OR.split(named[2] if named else plain):
        parts = [_part(part.strip()) for part in _AND.split(alternative)]
        found = [part for part in parts if part]
        # In `(1,2) and (3,4)`, the parts are points.
        if len(found) < len(parts) or (" and " in alternative and not all(part.name for part in found)):
            return None
        unions.append(r" \cap ".join(f"({part.latex})" for part in found) if len(found) > 1 else found[0].latex)
        names |= {part.name for part in found if part.name}
        is_finite &= all(part.latex.startswith(r"\{") for part in found)
    if is_finite or len(names) > 1:
        return None
    joined = unions[0] if len(unions) == 1 else r" \cup ".join(f"({union})" for union in unions)
    return Intervals(joined, next(iter(names), None))


def as_list(text: str) -> str | None:
    """Return `x = 1 or x = 2` as the set of the values, or None for any other text."""
    if len(text) > LONGEST:
        return None
    found = [_SOLUTION.fullmatch(part.strip()) for part in _LISTED.split(_in_one_spelling(text))]
    solutions = [(each[1], each[2]) for each in found if each]
    if len(found) == 1 or len(solutions) < len(found) or len({name for name, _ in solutions}) > 1:
        return None
    return rf"\{{{', '.join(value for _, value in solutions)}\}}"


def lists_values(text: str) -> bool:
    r"""Return whether a text is a set of single values, such as `\{-2, 2\}` and `\pm 2`, and not an interval."""
    plain = _in_one_spelling(text[:LONGEST])
    return bool(_VALUES.fullmatch(plain) or _PAIR.fullmatch(plain)) or as_list(text) is not None


def _in_one_spelling(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text.strip(" .\n")


def _part(text: str) -> Intervals | None:
    """Return the set of one inequality, interval or list of values."""
    if member := _MEMBER.fullmatch(text):
        part = _part(member[2].strip())
        return part and part._replace(name=_plain_name(member[1]))
    if text == r"\emptyset" or (_VALUES.fullmatch(text) and text.startswith(r"\{")):
        return Intervals(text)
    if interval := _INTERVAL.fullmatch(text):
        # An opening bracket at the end excludes the bound: `]1,2[`.
        opening, closing = interval[1].replace("]", "("), interval[3].replace("[", ")")
        return Intervals(f"{opening}{interval[2]}{closing}")
    if without := _WITHOUT.fullmatch(text):
        return _without(without[1], None)
    if other := _OTHER.fullmatch(text):
        return _without(other[2], _plain_name(other[1]))
    if solution := _SOLUTION.fullmatch(text):
        return None if _varies(solution[2]) else Intervals(rf"\{{{solution[2]}\}}", solution[1])
    if chain := _CHAIN.fullmatch(text):
        return _chained(chain)
    if left := _BOUND_LEFT.fullmatch(text):
        text = f"{left[3]} {_MIRRORED[left[2]]} {left[1]}"
    if distance := _DISTANCE.fullmatch(text):
        return _around(distance)
    if bound := _BOUND.fullmatch(text):
        name, sign, value = bound.groups()
        return None if _varies(value) else Intervals(_beyond(sign, value), _plain_name(name))
    return None


def _chained(chain: re.Match[str]) -> Intervals | None:
    """Return the set of `1 < x < 2` or `2 > x > 1`."""
    low, after, name, before, high = chain.groups()
    if _varies(low, high) or (after in "<≤") != (before in "<≤"):
        return None
    if after in ">≥":
        low, after, before, high = high, _MIRRORED[before], _MIRRORED[after], low
    opening, closing = "(" if after == "<" else "[", ")" if before == "<" else "]"
    return Intervals(f"{opening}{low},{high}{closing}", _plain_name(name))


def _around(distance: re.Match[str]) -> Intervals | None:
    """Return the set of `|x - 1| < 2`."""
    before, sign_after, name, sign, after, relation, radius = distance.groups()
    if (before and after) or _varies(before or after or "0", radius):
        return None
    center = f"+({before or after})" if before or after else ""
    if "+" in (sign_after, sign):
        center = center.replace("+", "-", 1)
    low, high = _beyond(_MIRRORED[relation], f"-({radius}){center}"), _beyond(relation, f"({radius}){center}")
    joined = rf"{high} \cap {low}" if relation in "<≤" else rf"{low} \cup {high}"
    return Intervals(joined, _plain_name(name))


def _beyond(sign: str, value: str) -> str:
    """Return the set of all numbers that are less, or greater, than a value."""
    closed = sign in "≤≥"
    return (
        rf"(-\infty,{value}{']' if closed else ')'}" if sign in "<≤" else rf"{'[' if closed else '('}{value},\infty)"
    )


def _without(values: str, name: str | None) -> Intervals | None:
    return None if _varies(values) else Intervals(rf"(-\infty,\infty) \setminus \{{{values}\}}", name)


def _varies(*values: str) -> bool:
    return any(_LETTER.search(value.replace("e", "")) for value in values)


def _plain_name(name: str) -> str:
    return re.sub(r"[\\{}]", "", name)
