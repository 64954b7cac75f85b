"""Check several constraints on one text, strictly or loosely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nemo_gym.grading.constraints.registry import Constraint

LONGEST_TEXT = 1_000_000
"""Characters; what is longer is not read, and keeps no constraint."""


def followed(text: str, constraints: Sequence[Constraint], loose: bool = False) -> list[bool]:
    """Whether the text keeps each of the constraints.

    Loosely it does if any of `loose_variants` keeps it: a model may greet before it obeys.
    """
    if len(text) > LONGEST_TEXT:
        return [False] * len(constraints)
    texts = list(loose_variants(text)) if loose else [text]
    return [any(each.holds_for(variant) for variant in texts) for each in constraints]


def loose_variants(text: str) -> Iterator[str]:
    """The text, without its first line, without its last, without both; and each of these without asterisks."""
    lines = text.split("\n")
    parts = ([*lines], lines[1:], lines[:-1], lines[1:-1])
    for part in parts:
        plain = "\n".join(part).strip() if len(part) < len(lines) else text
        yield plain
        if "*" in plain:
            yield plain.replace("*", "")
