"""Parse JSON but keep long arrays of token ids and log-probabilities as text, for code that only forwards them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from nemo_gym.jsonl import dump_json, loads_exact

TOKEN_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
WORTH_BYTES = 512
"""The size from which arrays are kept as text. Parsing a shorter array costs less."""
LONG_NUMBER = 300
"""The length from which a number may exceed the range of a float. The largest float has 309 digits."""

# This regular expression cannot match inside a JSON string, because quotes are escaped there.
_BEGINNING = re.compile(rb'"(?:' + "|".join(TOKEN_KEYS).encode() + rb')"\s*:\s*(?=\[)')
# Every JSON value other than a number contains one of these bytes, and so do NaN, Infinity and hexadecimal numbers.
# In long arrays, searching for all seven is several times as fast as `bytes.translate`.
_OF_OTHER_VALUES = (b'"', b"[", b"{", b"u", b"f", b"N", b"x")
_MARK = f"array {secrets.token_hex(8)} "


class Cut(NamedTuple):
    """A JSON text without its long arrays of tokens."""

    text: bytes
    """The JSON text with a string as placeholder for each array."""
    arrays: list[bytes]

    def array_at(self, key: str, value: object) -> bytes | None:
        """Return the array for which a parsed value is the placeholder, or None if the value is not a placeholder."""
        if key in TOKEN_KEYS and isinstance(value, str) and value.startswith(_MARK):
            return self.arrays[int(value.removeprefix(_MARK))]
        return None

    def restore(self, value: object, read: Callable[[bytes], object]) -> None:
        """Replace every placeholder in the parsed text with the result of `read` for the placeholder's array."""
        if isinstance(value, dict):
            for key, child in value.items():
                if isinstance(child, (dict, list)):
                    self.restore(child, read)
                elif (array := self.array_at(key, child)) is not None:
                    value[key] = read(array)
        elif isinstance(value, list):
            for child in value:
                if isinstance(child, (dict, list)):
                    self.restore(child, read)


def cut_tokens(text: bytes) -> Cut:
    """Remove the long arrays of numbers under `TOKEN_KEYS` from a JSON text, without parsing it."""
    # Search from the end, because `rfind` takes a third of the time of `in`, and tokens are usually near the end.
    if len(text) < WORTH_BYTES or (text.rfind(b'_log_probs"') < 0 and text.rfind(b'_token_ids"') < 0):
        return Cut(text, [])
    parts: list[bytes] = []
    arrays: list[bytes] = []
    copied = position = 0
    while key := _BEGINNING.search(text, position):
        position, end = key.end(), text.find(b"]", key.end()) + 1
        array = text[position:end]
        if len(array) < WORTH_BYTES or not _is_of_numbers(array):
            continue
        parts += (text[copied:position], f'"{_MARK}{len(arrays)}"'.encode())
        # Replace line breaks, because the array is written into one line of the results.
        arrays.append(array.replace(b"\n", b" ").replace(b"\r", b" "))
        # Skip the array, because it makes up most of the text and cannot contain a key.
        copied = position = end
    return Cut(b"".join((*parts, text[copied:])) if arrays else text, arrays)


def _is_of_numbers(array: bytes) -> bool:
    """Return whether an array has only numbers, provided that it is valid JSON."""
    return array.isascii() and all(array.find(character, 1) < 0 for character in _OF_OTHER_VALUES)


def is_valid_array(array: bytes) -> bool:
    """Return whether an array of `cut_tokens` is valid JSON, which its characters alone do not guarantee."""
    try:
        if b"." in array or b"e" in array or b"E" in array or _has_long_number(array):
            # Only orjson rejects numbers beyond the range of a float.
            orjson.loads(array)
        else:
            _Nothing.model_validate_json(b'{"":%b}' % array)
    except ValueError:
        return False
    return True


class _Nothing(BaseModel):
    """A pydantic model without fields, to check JSON. For integers, its parser takes two thirds of orjson's time."""


def _has_long_number(array: bytes) -> bool:
    end = 0
    while end + LONG_NUMBER < len(array):
        end = array.rfind(b",", end, end + LONG_NUMBER) + 1
        if not end:
            return True
    return False


def loads_opaque(text: bytes) -> Any:
    """Parse JSON, but return each long array under one of `TOKEN_KEYS` as an `orjson.Fragment` of its text.

    `orjson.dumps` writes such a fragment back unchanged. Raise `orjson.JSONDecodeError` for invalid JSON, but leave
    invalid numbers inside a fragment to the code that parses it.
    """
    cut = cut_tokens(text)
    parsed = loads_exact(cut.text)
    if cut.arrays:
        cut.restore(parsed, orjson.Fragment)
    return parsed


def plain(value: object) -> Any:
    """Return the value with every `orjson.Fragment` in it replaced by the fragment's parsed JSON."""
    return loads_exact(dump_json(value))
