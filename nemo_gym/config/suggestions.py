"""Suggestions for mistyped words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CERTAINLY_MEANT = 0.85
"""A similarity cutoff that accepts `temprature` for `temperature`, but not `top_k` for `top_p`."""
SHORTEST_SWAP = 4
"""The minimum length of words to check for swapped letters. Shorter words are too often simply different words."""
ADD_A_FILE = "Add a file that defines one to config_paths."


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word most similar to `word`, or None if no word is similar enough. Ignore case."""
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in reversed(names)}
    # Check for swapped letters first, because difflib counts them as two typos, too many for a word such as `prot`.
    swapped = [name for name in folded if _differ_by_swap(word.casefold(), name)]
    found = swapped or get_close_matches(word.casefold(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def _differ_by_swap(one: str, other: str) -> bool:
    """Return whether two words differ only in the order of two neighbouring letters."""
    if len(one) != len(other) or len(one) < SHORTEST_SWAP:
        return False
    at = [index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return len(at) == 2 and at[1] == at[0] + 1 and one[at[0]] + one[at[1]] == other[at[1]] + other[at[0]]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or an empty string."""
    guess = closest(word, known)
    return f" Did you mean '{guess}'?" if guess else ""


def did_you_mean_or_all(word: str, known: Iterable[str], noun: str, limit: int = 12, *, if_none: str = "") -> str:
    """Return a suggestion, or else the list of valid names. `if_none` is the advice if there are no valid names."""
    names = sorted(set(known))
    if not names:
        return f" There are no {noun}. {if_none}".rstrip()
    listed = ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
    return did_you_mean(word, names) or f" The {noun} are: {listed}."


def search_dir_for(folder: str) -> str:
    """Return the advice for a folder that none of the search roots contains."""
    return f"Name the folder that contains {folder}/ with --search-dir."
