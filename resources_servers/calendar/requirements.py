"""A row's requirements for one event: its duration and permitted times."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MINUTES_OF_DAY = 24 * 60

_TIME = re.compile(r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>am|pm)?", re.IGNORECASE)
_CONSTRAINT = re.compile(r"(?P<kind>before|after|at|between)\s+(?P<first>.+?)(?:\s+and\s+(?P<second>.+))?")


class Span(NamedTuple):
    """An event's time window in minutes since midnight. The event starts at `start` or later and ends by `end`."""

    start: int
    end: int


def minutes_of(text: str) -> int:
    """Parse a time such as `10:00`, `11:15am` or `4pm` into minutes since midnight, or raise `ValueError`."""
    time = _TIME.fullmatch(text.strip())
    if time is None:
        raise ValueError(f"'{text}' is not a time. Write it like 10:00, 11:15am or 4pm")
    hour, minute = int(time["hour"]), int(time["minute"] or 0)
    if time["half"]:
        is_hour = 1 <= hour <= 12
        hour = hour % 12 + (12 if time["half"].lower() == "pm" else 0)
    else:
        is_hour = hour * 60 + minute <= MINUTES_OF_DAY
    if not is_hour or minute > 59:
        raise ValueError(f"'{text}' is not a time of day. Write it like 10:00, 11:15am or 4pm")
    return hour * 60 + minute


class Requirement(BaseModel):
    """One event that the calendar must contain."""

    model_config = ConfigDict(extra="allow")

    event_id: int | str
    duration: int = Field(gt=0)
    """The duration in minutes."""
    constraint: str | None = None
    """`before 11am`, `after 2pm`, `between 10am and 11:45am`, `at 11:15am`, or None."""
    min_time: str
    """The start of the user's day. The event must not start earlier."""
    max_time: str
    """The end of the user's day. The event must not end later."""

    @field_validator("min_time", "max_time")
    @classmethod
    def _is_time(cls, value: str) -> str:
        minutes_of(value)
        return value

    @model_validator(mode="after")
    def _constraint_can_be_read(self) -> Requirement:
        _ = self.span
        return self

    @property
    def key(self) -> str:
        """The id as text, because models write both `1` and `"1"`."""
        return str(self.event_id)

    @cached_property
    def span(self) -> Span:
        """The permitted time: the day's window, narrowed by the constraint."""
        window = Span(minutes_of(self.min_time), minutes_of(self.max_time))
        wanted = self._wanted()
        return Span(max(window.start, wanted.start), min(window.end, wanted.end))

    def _wanted(self) -> Span:
        if self.constraint is None:
            return Span(0, MINUTES_OF_DAY)
        parts = _CONSTRAINT.fullmatch(self.constraint.strip().lower())
        if parts is None or (parts["kind"] == "between") != (parts["second"] is not None):
            raise ValueError(
                f"the constraint '{self.constraint}' cannot be read. Write 'before …', 'after …', 'at …' or "
                "'between … and …'"
            )
        first = minutes_of(parts["first"])
        match parts["kind"]:
            case "before":
                return Span(0, first)
            case "after":
                return Span(first, MINUTES_OF_DAY)
            case "at":
                return Span(first, first + self.duration)
            case _:
                return Span(first, minutes_of(parts["second"]))
