"""Parse JSON but keep long arrays of token ids and log-probabilities as text, for code that only forwards them."""

from __future__ import annotations

import re
import secrets
from typing import Any

import orjson

TOKEN_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
WORTH_BYTES = 512
"""Parsing a shorter array costs less than keeping it as text."""

# Inside a string, the quotes of such a key would be escaped.
_BEGINNING = re.compile(rb'"(?:' + "|".join(TOKEN_KEYS).encode() + rb')"\s*:\s*(?=\[)')
_OF_NUMBERS = b"[0123456789.,-+eE \n\r\t]"
_MARK = f"array {secrets.token_hex(8)} "


def loads_opaque(text: bytes) -> Any:
    """Parse JSON, but return long arrays under one of `TOKEN_KEYS` as `orjson.Fragment` of their own text.

    `orjson.dumps` writes such a fragment back unchanged. Raise `orjson.JSONDecodeError` for invalid JSON, but leave
    invalid numbers inside a fragment to the code that parses it.
    """
    if len(text) < WORTH_BYTES or not (b"_token_ids" in text or b"_log_probs" in text):
        return orjson.loads(text)
    parts: list[bytes] = []
    arrays: list[bytes] = []
    position = 0
    for key in _BEGINNING.finditer(text):
        begin, end = key.end(), text.find(b"]", key.end()) + 1
        array = text[begin:end]
        if len(array) < WORTH_BYTES or array.count(b"[") != 1 or array.translate(None, _OF_NUMBERS):
            continue
        parts += (text[position:begin], f'"{_MARK}{len(arrays)}"'.encode())
        arrays.append(array)
        position = end
    if not arrays:
        return orjson.loads(text)
    parsed = orjson.loads(b"".join((*parts, text[position:])))
    _restore(parsed, arrays)
    return parsed


def plain(value: object) -> Any:
    """Return the same value with all fragments parsed."""
    return orjson.loads(orjson.dumps(value))


def _restore(value: object, arrays: list[bytes]) -> None:
    if isinstance(value, dict):
        for key, child in value.items():
            if key in TOKEN_KEYS and isinstance(child, str) and child.startswith(_MARK):
                value[key] = orjson.Fragment(arrays[int(child.removeprefix(_MARK))])
            elif isinstance(child, (dict, list)):
                _restore(child, arrays)
    elif isinstance(value, list):
        for child in value:
            if isinstance(child, (dict, list)):
                _restore(child, arrays)
