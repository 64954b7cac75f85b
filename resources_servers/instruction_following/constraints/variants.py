"""Check one text against several constraints, strictly or loosely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resources_servers.instruction_following.constraints.registry import Constraint

LONGEST_TEXT = 1_000_000
"""Characters. A longer text follows no constraint and is not checked."""


def followed(text: str, constraints: Sequence[Constraint], loose: bool = False) -> list[bool]:
    """Return for each constraint whether the text follows it.

    A loose check passes if any of `loose_variants` follows the constraint, so a greeting or a closing line is allowed.
    """
    if len(text) > LONGEST_TEXT:
        return [False] * len(constraints)
    texts = list(loose_variants(text)) if loose else [text]
    return [any(each.holds_for(variant) for variant in texts) for each in constraints]


def loose_variants(text: str) -> Iterator[str]:
    """Yield the text as is, without its first line, last line and both, and each of them without asterisks."""
    lines = text.split("\n")
    parts = ([*lines], lines[1:], lines[:-1], lines[1:-1])
    for part in parts:
        plain = "\n".join(part).strip() if len(part) < len(lines) else text
        yield plain
        if "*" in plain:
            yield plain.replace("*", "")
