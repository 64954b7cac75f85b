"""Simulate a user's day: the user's message of each turn, and the calendar expected after it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from resources_servers.calendar.personas import Agenda, Persona, Turn
from resources_servers.calendar.requirements import Requirement, Span, minutes_of
from resources_servers.calendar.scheduling import clock, schedule

STEP = 15
"""The granularity of times and durations, in minutes."""
DURATIONS = (15, 30, 45, 60, 90)
TRIES = 200
"""The number of attempts to draw a request for one turn before the day counts as full."""


class Spoken(NamedTuple):
    """A sentence, and the parts that every rewording must contain."""

    text: str
    must_tell: tuple[str, ...]


class DayIsFull(Exception):
    """An error for a day into which no drawn event fits."""


class Utterance(NamedTuple):
    """One user turn, and the calendar expected after it."""

    text: str
    must_tell: tuple[str, ...]
    """Parts that every rewording must contain: names, numbers, times."""
    calendar: str
    """The assistant's correct reply: the calendar as JSON."""


class PlayedDay(NamedTuple):
    """All user turns of a day, and the events that the final calendar must contain."""

    persona: Persona
    agenda: Agenda
    utterances: list[Utterance]
    required: dict[str, Requirement]


@dataclass
class Conversation:
    """A simulated day in progress, and the events that the calendar must currently contain."""

    persona: Persona
    agenda: Agenda
    rng: random.Random
    required: dict[int, Requirement] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def play(self) -> PlayedDay:
        """Simulate and return the day. Raises `DayIsFull` if the drawn events leave no room for the next one."""
        utterances = []
        for number, turn in enumerate(self.agenda.turns):
            text, must_tell = self._sentence(turn)
            text = text if number else f"{self.persona.greets} {text}"
            utterances.append(Utterance(text, must_tell, self._calendar()))
        return PlayedDay(
            self.persona, self.agenda, utterances, {str(key): each for key, each in self.required.items()}
        )

    def _sentence(self, turn: Turn) -> Spoken:
        if turn == "chat" or (turn != "add" and not self.required):
            return Spoken(self.rng.choice(self.persona.chats), ())
        if turn == "add":
            return self._adds()
        key = self.rng.choice(list(self.required))
        if turn == "cancel":
            del self.required[key]
            return self._spoken(self.persona.cancels, key)
        if turn == "free":
            self.required[key] = self._with(key, constraint=None)
            return self._spoken(self.persona.frees, key)
        if turn == "resize":
            self.required[key] = changed = self._fitting(key, lambda: {"duration": self._duration()})
            return self._spoken(self.persona.resizes, key, minutes=changed.duration)
        duration = self.required[key].duration
        self.required[key] = changed = self._fitting(key, lambda: {"constraint": self._constraint(duration)})
        return self._spoken(self.persona.moves, key, when=changed.constraint)

    def _adds(self) -> Spoken:
        key = len(self.names) + 1
        unused = [event for event in self.persona.events if event not in self.names.values()]
        self.names[key] = self.rng.choice(unused) if unused else f"event {key}"

        def wish() -> dict[str, Any]:
            duration = self._duration()
            is_free = self.rng.random() < 0.25
            return {"duration": duration, "constraint": None if is_free else self._constraint(duration)}

        self.required[key] = added = self._fitting(key, wish)
        return self._spoken(self.persona.adds, key, minutes=added.duration, when=added.constraint)

    def _spoken(self, template: str, key: int, *, minutes: int | None = None, when: str | None = None) -> Spoken:
        event = self.names[key]
        text = template.format(event=event, minutes=minutes, when=f" {when}" if when else "")
        if template.startswith("{"):
            text = text[0].upper() + text[1:]
        parts = (event.removeprefix("the "), None if minutes is None else str(minutes), when)
        return Spoken(text, tuple(part for part in parts if part))

    def _fitting(self, key: int, wish: Any) -> Requirement:
        """Draw requests until one changes the event and fits together with all other events."""
        for _ in range(TRIES):
            wanted = self._with(key, **wish())
            if wanted != self.required.get(key) and schedule(list({**self.required, key: wanted}.values())):
                return wanted
        raise DayIsFull

    def _with(self, key: int, **changes: Any) -> Requirement:
        known = self.required.get(key)
        fields = {
            "event_id": key,
            "duration": known.duration if known else None,
            "constraint": known.constraint if known else None,
            "min_time": self.agenda.min_time,
            "max_time": self.agenda.max_time,
        }
        return Requirement.model_validate({**fields, **changes})

    def _duration(self) -> int:
        opens, closes = self._day
        possible = [duration for duration in DURATIONS if duration <= closes - opens]
        if not possible:
            raise DayIsFull
        return self.rng.choice(possible)

    @property
    def _day(self) -> Span:
        return Span(minutes_of(self.agenda.min_time), minutes_of(self.agenda.max_time))

    def _constraint(self, duration: int) -> str:
        opens, closes = self._day
        start = self.rng.randrange(opens, closes - duration + 1, STEP)
        end = start + duration
        match self.rng.choice(("before", "after", "between", "at")):
            case "before":
                return f"before {_as_said(end)}"
            case "after":
                return f"after {_as_said(start)}"
            case "at":
                return f"at {_as_said(start)}"
            case _:
                slack = self.rng.choice((STEP, 2 * STEP, 4 * STEP))
                return f"between {_as_said(max(opens, start - slack))} and {_as_said(min(closes, end + slack))}"

    def _calendar(self) -> str:
        starts = schedule(list(self.required.values())) or {}
        return json.dumps(
            [
                {
                    "event_id": key,
                    "event_name": self.names[key].removeprefix("the ").capitalize(),
                    "start_time": clock(starts[each.key]),
                    "duration": each.duration,
                }
                for key, each in self.required.items()
            ]
        )


def _as_said(minutes: int) -> str:
    """Return a time in spoken form, such as `11am` or `2:15pm`."""
    hour, minute = divmod(minutes, 60)
    return f"{hour % 12 or 12}{f':{minute:02d}' if minute else ''}{'am' if hour < 12 else 'pm'}"
