"""Suggestions for mistyped words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CERTAINLY_MEANT = 0.85
"""Similarity cutoff: accepts `temprature` for `temperature`, but not `top_k` for `top_p`."""


ADD_A_FILE = "Add a file that defines one to config_paths."


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word most similar to `word`, or None."""
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in reversed(names)}
    found = get_close_matches(word.casefold(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or an empty string."""
    guess = closest(word, known)
    return f" Did you mean '{guess}'?" if guess else ""


def did_you_mean_or_all(word: str, known: Iterable[str], noun: str, limit: int = 12, *, if_none: str = "") -> str:
    """Return a suggestion, or else the list of valid names. `if_none` is the advice for an empty list."""
    names = sorted(set(known))
    if not names:
        return f" There are no {noun}. {if_none}".rstrip()
    listed = ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
    return did_you_mean(word, names) or f" The {noun} are: {listed}."


def search_dir_for(folder: str) -> str:
    """Return the advice for a folder that none of the search roots contains."""
    return f"Name the folder that contains {folder}/ with --search-dir."
