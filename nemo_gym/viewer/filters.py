"""The filter that all pages of the viewer share, parsed from query parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BeforeValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from nemo_gym.config.explain import explained_in_a_line
from nemo_gym.errors import UsageError
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.text import did_you_mean

LONGEST_WORDS = 1000
MOST_VALUES = 500
"""The maximum number of values per parameter, because SQLite rejects a query with a thousand conditions."""


def _name_and_value(text: object) -> object:
    if not isinstance(text, str):
        return text
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError("it must be name=value, such as metadata.subset=algebra")
    return name, value


V = TypeVar("V")
Several = Annotated[tuple[V, ...], Field(max_length=MOST_VALUES)]
Index = Annotated[int, Field(ge=0, lt=1 << 43)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
FieldValue = Annotated[tuple[str, str], BeforeValidator(_name_and_value)]


@dataclass(frozen=True)
class Filter:
    """A selection of rollouts: the `Filter` of api.ts. Empty tuples and None select everything."""

    agent: Several[str] = ()
    task: Several[Index] = ()
    repeat: Several[Index] = ()
    outcome: Several[Outcome] = ()
    failure: Several[str] = ()
    tier: Several[str] = ()
    server: Several[str] = ()
    tool: Several[str] = ()
    tool_failed: bool | None = None
    """Whether a call of one of the tools failed, or of any tool if `tool` is empty."""
    reward_min: Bound | None = None
    reward_max: Bound | None = None
    steps_min: Bound | None = None
    steps_max: Bound | None = None
    words: Annotated[str, Field(max_length=LONGEST_WORDS)] | None = None
    field: Several[FieldValue] = ()
    """Pairs of a field's name and a value."""
    star: bool | None = None
    tag: Several[str] = ()
    commented: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a query such as `outcome=failed&tool=search`. Raise `UsageError` for an unknown name or bad value."""
        pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
        for name, _ in pairs:
            if name not in NAMES:
                known = ", ".join(NAMES)
                raise UsageError(f"'{name}' is not a filter.{did_you_mean(name, NAMES)} Filters: {known}")
        return cls.of(pairs)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Read the filter from query parameters, ignoring other parameters. Raise `UsageError` for a bad value."""
        found: dict[str, list[str]] = {}
        for name, text in pairs:
            if name in NAMES and (text or name == "field"):
                found.setdefault(name, []).append(text)
        try:
            return cls(**{name: texts if NAMES[name] == () else texts[-1] for name, texts in found.items()})  # type: ignore[arg-type]
        except ValidationError as error:
            raise UsageError(f"{explained_in_a_line(error)}.") from error

    @property
    def is_empty(self) -> bool:
        """Whether the filter selects every rollout."""
        return self == type(self)()


def filter_of(request: Request) -> Filter:
    """Return the filter in a request's query, as a FastAPI dependency. Raise `UsageError` for a bad value."""
    return Filter.of(request.query_params.multi_items())


NAMES = {each.name: each.default for each in fields(Filter)}
"""The names of all filters, with () as the default of those that take several values."""
