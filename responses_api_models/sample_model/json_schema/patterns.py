"""Strings that match a regular expression, drawn along the standard library's own parse tree."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Protocol

UNBOUNDED = 1 << 30
"""Stands for 'any length'; no string of this length is ever made."""
SPREAD = 6
"""An open repetition is drawn at most this many times more than it must."""
TRIES = 60

PRINTABLE = "".join(map(chr, range(32, 127)))
_CATEGORIES = {
    op.CATEGORY_DIGIT: string.digits,
    op.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
    op.CATEGORY_SPACE: " ",
}
_NEGATED_CATEGORIES = {
    op.CATEGORY_NOT_DIGIT: string.digits,
    op.CATEGORY_NOT_WORD: string.ascii_letters + string.digits + "_",
    op.CATEGORY_NOT_SPACE: string.whitespace,
}


class PatternError(ValueError):
    """A pattern that cannot be read, or that no string within the asked lengths was found for."""


class Misfit(Exception):
    """This part of the pattern has no string of the asked length."""


class Node(Protocol):
    """A part of a pattern; its strings are between `low` and `high` characters long."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        """A string of any length that comes naturally."""

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        """A string of exactly this length, or `Misfit`."""


@dataclass(frozen=True)
class Chars:
    """One character out of several."""

    choices: str
    low: int = 1
    high: int = 1

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        return rng.choice(self.choices)

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        if length != 1:
            raise Misfit
        return rng.choice(self.choices)


@dataclass(frozen=True)
class Chain:
    """Parts one after the other."""

    parts: Sequence[Node]
    low: int
    high: int

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        return "".join([part.draw(rng, groups) for part in self.parts])

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        shares = shared_out(rng, length, [(part.low, part.high) for part in self.parts])
        return "".join([part.fit(rng, share, groups) for part, share in zip(self.parts, shares, strict=True)])


@dataclass(frozen=True)
class Choice:
    """One part out of several."""

    branches: Sequence[Node]
    low: int
    high: int

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        return rng.choice(self.branches).draw(rng, groups)

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        fitting = [branch for branch in self.branches if branch.low <= length <= branch.high]
        if not fitting:
            raise Misfit
        return rng.choice(fitting).fit(rng, length, groups)


@dataclass(frozen=True)
class Repeat:
    """One part, several times."""

    part: Node
    fewest: int
    most: int
    low: int
    high: int

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        times = rng.randint(self.fewest, min(self.most, self.fewest + SPREAD))
        return "".join([self.part.draw(rng, groups) for _ in range(times)])

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        part = self.part
        if isinstance(part, Chars):
            if not self.fewest <= length <= self.most:
                raise Misfit
            return "".join(rng.choices(part.choices, k=length))
        fewest = max(self.fewest, -(-length // part.high) if part.high else 0)
        most = min(self.most, length // part.low if part.low else max(fewest, length))
        if fewest > most:
            raise Misfit
        times = rng.randint(fewest, min(most, fewest + SPREAD))
        shares = shared_out(rng, length, [(part.low, part.high)] * times)
        return "".join([part.fit(rng, share, groups) for share in shares])


@dataclass(frozen=True)
class Group:
    """A part whose string is remembered."""

    number: int
    part: Node
    low: int
    high: int

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        groups[self.number] = text = self.part.draw(rng, groups)
        return text

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        groups[self.number] = text = self.part.fit(rng, length, groups)
        return text


@dataclass(frozen=True)
class Backreference:
    """The string of a group again; how long that is shows only once it is drawn."""

    number: int
    low: int
    high: int

    def draw(self, rng: Random, groups: dict[int, str]) -> str:
        return groups.get(self.number, "")

    def fit(self, rng: Random, length: int, groups: dict[int, str]) -> str:
        text = groups.get(self.number, "")
        if len(text) != length:
            raise Misfit
        return text


def shared_out(rng: Random, total: int, bounds: Sequence[tuple[int, int]]) -> list[int]:
    """`total` divided at random into one share for each (low, high); `Misfit` where that cannot be."""
    shares = [low for low, _ in bounds]
    rest = total - sum(shares)
    if rest < 0 or rest > sum(high - low for low, high in bounds):
        raise Misfit
    order = [index for index, (low, high) in enumerate(bounds) if high > low]
    rng.shuffle(order)
    for index in order:
        extra = rng.randint(0, min(rest, bounds[index][1] - shares[index]))
        shares[index] += extra
        rest -= extra
    for index in order:
        extra = min(rest, bounds[index][1] - shares[index])
        shares[index] += extra
        rest -= extra
    return shares


class Pattern:
    """A regular expression as JSON Schema means it: it may match anywhere in the string.

    Look-around and word boundaries are not steered for, only checked: what fails them is drawn again.
    """

    def __init__(self, text: str) -> None:
        source = re.sub(r"\(\?<(?![=!])", "(?P<", text)
        source = re.sub(r"\\k<(\w+)>", r"(?P=\1)", source)
        try:
            # The dialect of JSON Schema counts only ASCII as digits and word characters.
            self._expression = re.compile(source, re.ASCII)
            self._root = _node(_parser.parse(source, re.ASCII))
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(f"pattern {text!r} cannot be read here: {error}") from error
        self._text = text

    def matches(self, value: str) -> bool:
        """Whether the pattern is found in the string."""
        return self._expression.search(value) is not None

    def sample(self, rng: Random, min_length: int = 0, max_length: int | None = None) -> str:
        """A string that matches, of a length within the bounds (in characters, inclusive)."""
        longest = UNBOUNDED if max_length is None else max_length
        for attempt in range(TRIES):
            try:
                text = self._drawn(rng, min_length, longest, naturally=attempt < TRIES // 10)
            except Misfit:
                continue
            if min_length <= len(text) <= longest and self.matches(text):
                return text
        raise PatternError(
            f"no string of {min_length} to {'any number of' if max_length is None else max_length} characters "
            f"was found for the pattern {self._text!r}"
        )

    def _drawn(self, rng: Random, shortest: int, longest: int, *, naturally: bool) -> str:
        root = self._root
        if naturally:
            text = root.draw(rng, {})
            if shortest <= len(text) <= longest:
                return text
        low = max(shortest, root.low)
        high = min(longest, root.high)
        if low <= high:
            return root.fit(rng, rng.randint(low, min(high, low + 2 * SPREAD)), {})
        # Every match is shorter than asked: where the pattern is not anchored, anything may stand beside it.
        text = root.draw(rng, {})
        filler = "".join(rng.choices(string.ascii_lowercase, k=max(0, shortest - len(text))))
        return text + filler if rng.random() < 0.5 else filler + text


@lru_cache(maxsize=1024)
def pattern(text: str) -> Pattern:
    """The pattern of this text, read once."""
    return Pattern(text)


def _node(tree: Any) -> Node:
    parts = [part for part in (_READERS[code](value) for code, value in tree) if part.high]
    if len(parts) == 1:
        return parts[0]
    return Chain(parts, sum(part.low for part in parts), min(UNBOUNDED, sum(part.high for part in parts)))


def _nothing(_: Any) -> Node:
    return Chain((), 0, 0)


def _one_of(choices: str) -> Chars:
    if not choices:
        raise re.error("a set that holds no character")
    return Chars(choices)


def _branch(value: tuple[None, list[Any]]) -> Node:
    branches = [_node(branch) for branch in value[1]]
    return Choice(branches, min(branch.low for branch in branches), max(branch.high for branch in branches))


def _repeat(value: tuple[int, int, Any]) -> Node:
    fewest, most, part = value[0], min(int(value[1]), UNBOUNDED), _node(value[2])
    return Repeat(part, fewest, most, min(UNBOUNDED, fewest * part.low), min(UNBOUNDED, most * part.high))


def _group(value: tuple[int | None, int, int, Any]) -> Node:
    part = _node(value[3])
    return part if value[0] is None else Group(value[0], part, part.low, part.high)


def _set(members: list[tuple[Any, Any]]) -> Node:
    included: dict[str, None] = {}
    for code, value in members:
        if code is op.LITERAL:
            included[chr(value)] = None
        elif code is op.RANGE:
            # A few hundred characters of a script are plenty.
            included.update(dict.fromkeys(map(chr, range(value[0], min(value[1], value[0] + 255) + 1))))
        elif code is op.CATEGORY and value in _CATEGORIES:
            included.update(dict.fromkeys(_CATEGORIES[value]))
        elif code is op.CATEGORY:
            excluded = _NEGATED_CATEGORIES[value]
            included.update(dict.fromkeys(char for char in PRINTABLE if char not in excluded))
    if members[0][0] is op.NEGATE:
        return _one_of("".join(char for char in PRINTABLE if char not in included) or "\u00e9")
    # Lone surrogates are no characters: JSON could not carry them.
    return _one_of("".join(char for char in included if not "\ud800" <= char <= "\udfff"))


_READERS: dict[Any, Callable[[Any], Node]] = {
    op.LITERAL: lambda value: _one_of(chr(value)),
    op.NOT_LITERAL: lambda value: _one_of(PRINTABLE.replace(chr(value), "")),
    op.ANY: lambda _: Chars(PRINTABLE),
    op.IN: _set,
    op.BRANCH: _branch,
    op.SUBPATTERN: _group,
    op.ATOMIC_GROUP: _node,
    op.MAX_REPEAT: _repeat,
    op.MIN_REPEAT: _repeat,
    op.POSSESSIVE_REPEAT: _repeat,
    op.GROUPREF: lambda number: Backreference(number, 0, UNBOUNDED),
    op.GROUPREF_EXISTS: lambda value: _branch((None, [part for part in value[1:] if part is not None])),
    op.AT: _nothing,
    op.ASSERT: _nothing,
    op.ASSERT_NOT: _nothing,
    op.FAILURE: _nothing,
}
