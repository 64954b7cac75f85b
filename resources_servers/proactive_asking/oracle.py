"""A perfect attempt: ask for the missing detail, then book with the answer."""

from __future__ import annotations

from typing import Any

from nemo_gym.testing import call, heard


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the question and the user's answer, if a detail is missing, then the booking and a final message."""
    expected, missing = row["expected_booking"], row.get("missing_detail")
    done = [call(expected["tool"], **expected["arguments"]), "It is booked."]
    if missing is None:
        return done
    words = missing["asked_with"]
    says = next(answer["says"] for answer in row["user"]["answers"] if answer["asked"] == words)
    return [f"Gladly. Please tell me one more thing: {words[0]}?", heard(says), *done]
