"""A perfect attempt, which fulfils the wishes of each message and then answers its questions."""

from __future__ import annotations

import json
from typing import Any

from nemo_gym.testing import call, heard


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the output items: for each message of the user, the calls and the reply, then the next message."""
    items: list[Any] = []
    for turn, message in enumerate([None, *row["user"]["script"]], start=1):
        wishes = [wish for wish in row["wishes"] if wish["turn"] == turn]
        items += [heard(message)] if message else []
        calls = [each for wish in wishes for each in wish.get("calls", ())]
        items += [call(each["name"], **json.loads(each["arguments"])) for each in calls]
        answers = [f"Q{wish['number']}: {_spoken(wish)}" for wish in wishes if wish["kind"] == "ask"]
        items.append("\n".join(["It is done.", *answers]))
    return items


def _spoken(question: dict[str, Any]) -> str:
    answer: str = question["answer"]
    return answer.split(".", maxsplit=1)[0].capitalize() if question["form"] == "person" else answer
