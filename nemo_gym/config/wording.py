"""Numbers, and nouns with their number or article, for messages and tables."""

from __future__ import annotations

LONGEST_DIGITS = 1e15
"""The value from which numbers are shown with an exponent, because a float has no more exact digits."""


def decimal(value: float, places: int = 3) -> str:
    """Return `1,234.500` and so on, but `1e+308` instead of 309 digits."""
    return f"{value:,.{places}f}" if abs(value) < LONGEST_DIGITS else f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """Return `1 server`, `2 servers` and so on."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return `a list`, `an int` and so on."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
