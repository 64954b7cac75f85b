"""Measure JSON nesting depth without parsing, because recursive parsers may overflow the stack."""

from __future__ import annotations

import re

DEEPEST_ANSWER = 90
"""Maximum nesting depth of a model's answer.

It is below `DEEPEST_REQUEST`, because later requests contain the answer and are a few levels deeper.
"""
DEEPEST_REQUEST = 100
"""Maximum nesting depth of a request, unless the server sets `max_request_depth`."""
DEEPEST_ROW = 200
"""Maximum nesting depth of a row in a data file, even if servers accept more. orjson writes at most 254 levels."""

_QUOTES_AND_BRACKETS = b'"[]{}'
_ALL_ELSE = bytes(set(range(256)) - set(_QUOTES_AND_BRACKETS))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_OPENING = ord("(")
_FOLDS = 3
_LARGE_BYTES = 16 * 1024


def is_deeper_than(text: bytes | list[bytes], most: int) -> bool:
    """Return whether a JSON text is nested more than `most` levels deep. Brackets in strings do not count.

    The text may be in pieces. They are joined only if they contain many brackets.
    """
    if isinstance(text, list):
        if len(text) > 1 and _has_at_most(most, text):
            return False
        text = text[0] if len(text) == 1 else b"".join(text)
    if len(text) >= _LARGE_BYTES and _has_at_most(most, [text]):
        return False
    # All steps except the last loop run in C. Most texts do not reach that loop: they have at most `most` brackets.
    brackets = text.translate(_AS_ROUND, _ALL_ELSE)
    if brackets.count(b"(") <= most:
        return False
    if b"\\" in text:
        brackets = _ESCAPED.sub(b"", text).translate(_AS_ROUND, _ALL_ELSE)
    # Remove the strings, because brackets in them do not count. `translate` reduced strings without brackets to `""`.
    brackets = brackets.replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRING.sub(b"", brackets)
    for _ in range(min(_FOLDS, most)):
        # Remove the innermost pairs of brackets, so that the slow loop has less to do. Large bodies are mostly flat.
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
    """Return whether a text has at most `most` opening brackets in total, and therefore cannot nest deeper.

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
