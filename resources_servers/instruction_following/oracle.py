"""A perfect answer: a text that follows all constraints of a row. It is found by drafting and checking texts."""

from collections.abc import Iterator
from typing import Any

from nemo_gym import DataError
from resources_servers.instruction_following.constraints import constraint
from resources_servers.instruction_following.drafting import drafts
from resources_servers.instruction_following.solos import SOLOS

COUNTED = "some constraints only count words or characters, and any words keep them"
UNKNOWN = "a few words may be of any language"
RIGHT_BY_CHANCE = {
    "every number listed": COUNTED,
    "hedged between all numbers": COUNTED,
    "a long repetition": COUNTED,
    "something that equals everything": UNKNOWN,
    "an empty form": UNKNOWN,
    "a field of the row named": UNKNOWN,
}
"""The attacks that some constraints accept, each with the reason. The reward measures nothing but the constraints."""


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the first draft that follows every constraint. Raises `DataError` if none does."""
    task = row if row.get("instruction_id_list") else row["verifier_metadata"]
    ids = task["instruction_id_list"]
    arguments = [each or {} for each in task.get("kwargs") or [{}] * len(ids)]
    asked = list(zip(ids, arguments, strict=True))
    constraints = [constraint(id_, each) for id_, each in asked]
    for text in _candidates(asked):
        if all(each.holds_for(text) for each in constraints):
            return [text]
    raise DataError(f"row {row.get('id')}: no text found that follows all of {', '.join(ids)}. Remove a constraint.")


def _candidates(asked: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    for id_, arguments in asked:
        if id_ in SOLOS:
            yield SOLOS[id_](arguments)
    yield from drafts(asked)
