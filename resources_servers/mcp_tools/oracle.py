"""A perfect attempt: the expected calls, then the expected answer."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    calls = [call(each["name"], **each.get("arguments", {})) for each in row.get("expected_calls") or []]
    return [*calls, f"Answer: {row.get('expected_answer', 'done')}"]
