"""Rows made from a simulated day: the whole conversation, or its start, which a simulated user continues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resources_servers.calendar.conversation import PlayedDay

SYSTEM_PROMPT = (Path(__file__).parent / "prompts" / "system.md").read_text("utf-8")
GOAL = "a calendar of the day that holds all that you bring up"

Row = dict[str, Any]


def complete_row(day: PlayedDay, said: Sequence[str]) -> Row:
    """Return a row with the conversation up to the user's last message. The assistant's turns in it are perfect."""
    messages = [_system(day), _user(said[0])]
    for before, text in zip(day.utterances, said[1:], strict=False):
        messages += [{"role": "assistant", "content": before.calendar}, _user(text)]
    return _row(messages, day)


def live_row(day: PlayedDay, said: Sequence[str]) -> Row:
    """Return a row with the user's first message and a simulated user who sends the remaining messages one by one."""
    row = _row([_system(day), _user(said[0])], day)
    row["user"] = {"persona": day.persona.name, "goal": GOAL, "script": list(said[1:])}
    row["metadata"]["must_tell"] = [list(each.must_tell) for each in day.utterances[1:]]
    return row


def _row(messages: list[dict[str, str]], day: PlayedDay) -> Row:
    return {
        "responses_create_params": {"input": messages},
        "exp_cal_state": {key: each.model_dump(mode="json") for key, each in day.required.items()},
        "metadata": {"persona": day.persona.name, "agenda": day.agenda.name},
    }


def _system(day: PlayedDay) -> dict[str, str]:
    times = {"min_time": day.agenda.min_time, "max_time": day.agenda.max_time}
    return {"role": "system", "content": SYSTEM_PROMPT.format(**times).strip()}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
