"""The filter that all pages of the viewer share, parsed from query parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Self
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request

from nemo_gym.config.suggestions import did_you_mean
from nemo_gym.errors import UsageError
from nemo_gym.rollouts.outcome import Outcome

TRUE, FALSE = ("true", "1"), ("false", "0")
LONGEST_WORDS = 1000
MOST_VALUES = 500
"""The maximum number of values per parameter, because SQLite rejects a query with a thousand conditions."""


@dataclass(frozen=True)
class Filter:
    """A selection of rollouts: the `Filter` of api.ts. Empty tuples and None select everything."""

    agent: tuple[str, ...] = ()
    task: tuple[int, ...] = ()
    repeat: tuple[int, ...] = ()
    outcome: tuple[Outcome, ...] = ()
    failure: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    reward_min: float | None = None
    reward_max: float | None = None
    steps_min: float | None = None
    steps_max: float | None = None
    words: str | None = None
    field: tuple[tuple[str, str], ...] = ()
    """Pairs of a field's name and a value."""
    star: bool | None = None
    tag: tuple[str, ...] = ()
    commented: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a query such as `outcome=failed&tool=search`. Raise `UsageError` for an unknown name or bad value."""
        pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
        for name, _ in pairs:
            if name not in _READERS:
                known = ", ".join(_READERS)
                raise UsageError(f"'{name}' is not a filter.{did_you_mean(name, _READERS)} Filters: {known}")
        return cls.of(pairs)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Read the filter from query parameters, ignoring other parameters. Raise `UsageError` for a bad value."""
        found: dict[str, list[object]] = {}
        for name, text in pairs:
            if name in _READERS and (text or name == "field"):
                values = found.setdefault(name, [])
                values.append(_READERS[name](name, text))
                if len(values) > MOST_VALUES:
                    raise UsageError(f"{name}: expected at most {MOST_VALUES} values.")
        single = {"reward_min", "reward_max", "steps_min", "steps_max", "words", "star", "commented"}
        return cls(**{name: each[-1] if name in single else tuple(each) for name, each in found.items()})  # type: ignore[arg-type]

    @property
    def is_empty(self) -> bool:
        """Whether the filter selects every rollout."""
        return self == type(self)()


def filter_of(request: Request) -> Filter:
    """Return the filter in a request's query, as a FastAPI dependency. Raise `HTTPException` 400 for a bad value."""
    return filter_in(request.query_params.multi_items())


def filter_in(pairs: Iterable[tuple[str, str]]) -> Filter:
    """Return the filter in these query parameters. Raise `HTTPException` 400 for a bad value."""
    try:
        return Filter.of(pairs)
    except UsageError as error:
        raise HTTPException(400, str(error)) from error


def _text(_: str, text: str) -> str:
    return text


def _integer(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 43:
        raise UsageError(f"{name}={text[:100]}: expected an integer, 0 or more.")
    return number


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name}={text[:100]}: expected a number.")
    return number


def _flag(name: str, text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise UsageError(f"{name}={text[:100]}: expected true or false.")
    return text.lower() in TRUE


def _outcome(name: str, text: str) -> Outcome:
    try:
        return Outcome(text)
    except ValueError:
        raise UsageError(f"{name}={text[:100]}: expected one of {', '.join(Outcome)}.") from None


def _words(name: str, text: str) -> str:
    if len(text) > LONGEST_WORDS:
        raise UsageError(f"{name}: expected at most {LONGEST_WORDS} characters.")
    return text


def _field(name: str, text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not field or not equals:
        raise UsageError(f"{name}={text[:100]}: expected name=value, such as field=metadata.subset=algebra.")
    return field, value


_SPECIAL: dict[str, Callable[[str, str], object]] = {
    "task": _integer, "repeat": _integer, "outcome": _outcome, "reward_min": _number, "reward_max": _number,
    "steps_min": _number, "steps_max": _number, "words": _words, "field": _field, "star": _flag, "commented": _flag,
}  # fmt: skip
_READERS = {each.name: _SPECIAL.get(each.name, _text) for each in fields(Filter)}
