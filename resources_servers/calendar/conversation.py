"""Play a user through an agenda, with an assistant that keeps the calendar right, up to the user's last message."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resources_servers.calendar.personas import Agenda, Persona, Turn
from resources_servers.calendar.requirements import Requirement, Span, minutes_of
from resources_servers.calendar.scheduling import clock, schedule

SYSTEM_PROMPT = (Path(__file__).parent / "prompts" / "system.md").read_text("utf-8")

STEP = 15
"""Minutes: what times and durations are multiples of."""
DURATIONS = (15, 30, 45, 60, 90)
TRIES = 200
"""So many wishes are drawn for one turn before the day is taken to be full."""


class DayIsFull(Exception):
    """No wish that was drawn fits into the day."""


@dataclass
class Conversation:
    """A day under way: what was said, and what the calendar must hold by now."""

    persona: Persona
    agenda: Agenda
    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)
    required: dict[int, Requirement] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def play(self) -> dict[str, Any]:
        """The row: everything said up to the user's last message, and what the answer to it must hold.

        Raises `DayIsFull` where the events drawn leave no room for the next one.
        """
        times = {"min_time": self.agenda.min_time, "max_time": self.agenda.max_time}
        self.messages.append({"role": "system", "content": SYSTEM_PROMPT.format(**times).strip()})
        for number, turn in enumerate(self.agenda.turns):
            if number:
                self.messages.append({"role": "assistant", "content": self._calendar()})
            said = self._said(turn)
            self.messages.append({"role": "user", "content": said if number else f"{self.persona.greets} {said}"})
        return {
            "responses_create_params": {"input": self.messages},
            "exp_cal_state": {str(key): each.model_dump(mode="json") for key, each in self.required.items()},
            "metadata": {"persona": self.persona.name, "agenda": self.agenda.name},
        }

    def _said(self, turn: Turn) -> str:
        if turn == "chat" or (turn != "add" and not self.required):
            return self.rng.choice(self.persona.chats)
        if turn == "add":
            return self._adds()
        key = self.rng.choice(list(self.required))
        if turn == "cancel":
            del self.required[key]
            return _sentence(self.persona.cancels, event=self.names[key])
        if turn == "free":
            self.required[key] = self._with(key, constraint=None)
            return _sentence(self.persona.frees, event=self.names[key])
        if turn == "resize":
            self.required[key] = changed = self._fitting(key, lambda: {"duration": self._duration()})
            return _sentence(self.persona.resizes, event=self.names[key], minutes=changed.duration)
        duration = self.required[key].duration
        self.required[key] = changed = self._fitting(key, lambda: {"constraint": self._constraint(duration)})
        return _sentence(self.persona.moves, event=self.names[key], when=_when(changed))

    def _adds(self) -> str:
        key = len(self.names) + 1
        unused = [event for event in self.persona.events if event not in self.names.values()]
        self.names[key] = self.rng.choice(unused) if unused else f"event {key}"

        def wish() -> dict[str, Any]:
            duration = self._duration()
            is_free = self.rng.random() < 0.25
            return {"duration": duration, "constraint": None if is_free else self._constraint(duration)}

        self.required[key] = added = self._fitting(key, wish)
        return _sentence(self.persona.adds, event=self.names[key], minutes=added.duration, when=_when(added))

    def _fitting(self, key: int, wish: Any) -> Requirement:
        """The event as a wish would have it: another than before, and one that fits with all others."""
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
                return f"before {_spoken(end)}"
            case "after":
                return f"after {_spoken(start)}"
            case "at":
                return f"at {_spoken(start)}"
            case _:
                slack = self.rng.choice((STEP, 2 * STEP, 4 * STEP))
                return f"between {_spoken(max(opens, start - slack))} and {_spoken(min(closes, end + slack))}"

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


def _sentence(template: str, **parts: Any) -> str:
    said = template.format(**parts)
    return said[0].upper() + said[1:] if template[0] == "{" else said


def _when(required: Requirement) -> str:
    return f" {required.constraint}" if required.constraint else ""


def _spoken(minutes: int) -> str:
    """A time as people say it: `11am`, `2:15pm`."""
    hour, minute = divmod(minutes, 60)
    return f"{hour % 12 or 12}{f':{minute:02d}' if minute else ''}{'am' if hour < 12 else 'pm'}"
