"""What a mistyped word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word most like this one; None where none is."""
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in reversed(names)}
    found = get_close_matches(word.casefold(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing."""
    guess = closest(word, known)
    return f" Did you mean '{guess}'?" if guess else ""


def did_you_mean_or_all(word: str, known: Iterable[str], noun: str, limit: int = 12) -> str:
    """The guess; without one, what there is to choose from."""
    names = sorted(set(known))
    if not names:
        return f" There are no {noun}."
    listed = ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
    return did_you_mean(word, names) or f" The {noun} are: {listed}."
