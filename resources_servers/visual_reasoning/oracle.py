"""A perfect attempt, which replies with the expected answer. It uses `zoom` first if the text is small."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    looks = []
    if row["subset"] == "zoom":
        left, top, right, bottom = row["box"]
        looks = [call("zoom", x=left, y=top, w=right - left, h=bottom - top)]
    return [*looks, f"I have looked closely.\nAnswer: {row['expected_answer']}"]
