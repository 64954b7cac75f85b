"""JSON nesting depth, measured without parsing, because parsers recurse and overflow."""

from __future__ import annotations

import re

DEEPEST_ANSWER = 90
"""The limit for a model's answer. Requests that contain the answer are a few levels deeper and may have 100 levels."""
DEEPEST_REQUEST = 100
"""The limit for a request to a server, unless its `max_request_depth` is set."""
DEEPEST_ROW = 200
"""The limit for a row of a file, even if its servers accept more. orjson cannot write more than 254 levels."""

_QUOTES_AND_BRACKETS = b'"[]{}'
_ALL_ELSE = bytes(set(range(256)) - set(_QUOTES_AND_BRACKETS))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_OPENING = ord("(")
_FOLDS = 3
_LARGE_BYTES = 16 * 1024


def is_deeper_than(text: bytes | list[bytes], most: int) -> bool:
    """Return whether a JSON text nests brackets more than `most` deep. Brackets in strings do not count.

    The text may be in pieces. They are joined only if they contain many brackets.
    """
    if isinstance(text, list):
        if len(text) > 1 and _has_at_most(most, text):
            return False
        text = text[0] if len(text) == 1 else b"".join(text)
    if len(text) >= _LARGE_BYTES and _has_at_most(most, [text]):
        return False
    # All steps but the last loop run at the speed of C. Most texts end here, with at most `most` brackets in total.
    brackets = text.translate(_AS_ROUND, _ALL_ELSE)
    if brackets.count(b"(") <= most:
        return False
    if b"\\" in text:
        brackets = _ESCAPED.sub(b"", text).translate(_AS_ROUND, _ALL_ELSE)
    # Remove the strings without brackets.
    brackets = brackets.replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRING.sub(b"", brackets)
    for _ in range(min(_FOLDS, most)):
        # Remove the innermost pairs. Large bodies consist mostly of flat lists and objects.
        brackets = brackets.replace(b"()", b"")
        most -= 1
        if not brackets:
            return False
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == _OPENING else -1
        if depth > most:
            return True
    return False


def _has_at_most(most: int, pieces: list[bytes]) -> bool:
    """Return whether a text has at most `most` opening brackets in total, so that it cannot nest deeper.

    In a long text or a long array of numbers, `find` is ten times as fast as checking every byte.
    """
    for piece in pieces:
        for bracket in (b"[", b"{"):
            at = piece.find(bracket)
            while at >= 0:
                most -= 1
                if most < 0:
                    return False
                at = piece.find(bracket, at + 1)
    return True
