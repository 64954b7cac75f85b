"""Nouns with their number or article, for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return `1 server`, `2 servers` and so on."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return `a list`, `an int` and so on."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
