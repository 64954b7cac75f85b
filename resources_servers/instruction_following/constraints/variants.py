"""Check a text against several constraints, both strictly and loosely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from resources_servers.instruction_following.constraints.registry import Constraint

LONGEST_TEXT = 1_000_000
"""Maximum number of characters in a text. A longer text is not checked and fails every constraint."""


class Followed(NamedTuple):
    """The result of a check: for each constraint, whether the text follows it strictly, and whether loosely."""

    strict: list[bool]
    loose: list[bool]


def followed(text: str, constraints: Sequence[Constraint]) -> Followed:
    """Check a text against each constraint. The loose check also passes if one of the text's variants passes."""
    if len(text) > LONGEST_TEXT:
        return Followed([False] * len(constraints), [False] * len(constraints))
    strict = [each.holds_for(text) for each in constraints]
    variants = [] if all(strict) else list(loose_variants(text))[1:]
    loose = [
        is_strict or any(each.holds_for(variant) for variant in variants)
        for each, is_strict in zip(constraints, strict, strict=True)
    ]
    return Followed(strict, loose)


def loose_variants(text: str) -> Iterator[str]:
    """Yield the text as is, without its first line, without its last line, and without both.

    After a variant that contains asterisks, also yield this variant without asterisks.
    """
    lines = text.split("\n")
    parts = ([*lines], lines[1:], lines[:-1], lines[1:-1])
    for part in parts:
        plain = "\n".join(part).strip() if len(part) < len(lines) else text
        yield plain
        if "*" in plain:
            yield plain.replace("*", "")
