"""Text in messages: suggestions, nouns with numbers, templates, and text made safe for a terminal.

Text from models, servers and endpoints is not trusted: control characters could change the terminal, and others
could hide or reorder text.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from string import Formatter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

CODE_POINTS_SHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""A regex for characters that control the terminal, change the order of the text, or are invisible. It does not match
tabs, newlines and zero-width joiners."""
LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"
CERTAINLY_MEANT = 0.85
"""A similarity cutoff that accepts `temprature` for `temperature`, but not `top_k` for `top_p`."""
SHORTEST_SWAP = 4
"""The minimum length of words to check for swapped letters. Shorter words are too often simply different words."""
ADD_A_FILE = "Add a file that defines one to config_paths."
LONGEST_DIGITS = 1e15
"""The value from which numbers are shown with an exponent, because a float has no more exact digits."""


def visible(text: str) -> str:
    """Return the text with escapes such as `\\x1b` in place of the characters in `CODE_POINTS_SHOWN`."""
    return CODE_POINTS_SHOWN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_json(text: str) -> str:
    """Return the same JSON with JSON's own escapes in place of the characters in `CODE_POINTS_SHOWN`."""
    return CODE_POINTS_SHOWN.sub(lambda match: json.dumps(match.group())[1:-1], text)


def fields_of_template(template: str) -> list[str]:
    """Return the names of a template's `{fields}`. Raise `ValueError` if the template has an unmatched brace."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def problems_in(error: ValidationError, most: int | None = None) -> str:
    """Return the problems of a validation error in one line, or only the first `most` of them."""
    found = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:most])
    return "; ".join(problem.removeprefix(": ") for problem in found)


class VisibleFormatter(logging.Formatter):
    """A formatter of log records for a terminal: `visible` is applied to messages and tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to_terminal() -> None:
    """Log to standard error, unless the root logger has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


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


def decimal(value: float, places: int = 3) -> str:
    """Return `1,234.500` and so on, but `1e+308` instead of 309 digits."""
    return f"{value:,.{places}f}" if abs(value) < LONGEST_DIGITS else f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """Return `1 server`, `2 servers` and so on."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_few(items: Sequence[object], most: int) -> str:
    """Return the first items, separated by commas, and the number of the others: `0:1, 0:2 and 3 more`."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def with_article(noun: str) -> str:
    """Return `a list`, `an int` and so on."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
