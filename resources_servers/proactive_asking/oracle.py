"""A perfect attempt, which asks for the missing detail and then makes the booking."""

from __future__ import annotations

from typing import Any

from nemo_gym.testing import call, heard


def solve(row: dict[str, Any]) -> list[Any]:
    """Return a perfect conversation: the question for a missing detail, if any, then the booking and a message."""
    expected, missing = row["expected_booking"], row.get("missing_detail")
    done = [call(expected["tool"], **expected["arguments"]), "It is booked."]
    if missing is None:
        return done
    words = missing["asked_with"]
    says = next(answer["says"] for answer in row["user"]["answers"] if answer["asked"] == words)
    return [f"Gladly. Please tell me one more thing: {words[0]}?", heard(says), *done]
