"""How deep the brackets of a JSON text nest, told without parsing it: parsers recurse, and give up."""

from __future__ import annotations

import re

_QUOTES_AND_BRACKETS = b'"[]{}'
_ALL_ELSE = bytes(set(range(256)) - set(_QUOTES_AND_BRACKETS))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_OPENING = ord("(")
_FOLDS = 3


def is_deeper_than(text: bytes, most: int) -> bool:
    """Whether more than `most` brackets are open at once anywhere in a JSON text, those in strings aside."""
    # All but the last step runs at the speed of C; most texts have no more brackets than may be open.
    brackets = text.translate(_AS_ROUND, _ALL_ELSE)
    if brackets.count(b"(") <= most:
        return False
    if b"\\" in text:
        brackets = _ESCAPED.sub(b"", text).translate(_AS_ROUND, _ALL_ELSE)
    # Strings without brackets vanish at once.
    brackets = brackets.replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRING.sub(b"", brackets)
    for _ in range(min(_FOLDS, most)):
        # Flat lists and objects, of which large bodies are made, fold up: one level less of everything.
        brackets = brackets.replace(b"()", b"")
        most -= 1
        if not brackets:
            return False
    return _opens_more(brackets, most)


def _opens_more(brackets: bytes, most: int) -> bool:
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == _OPENING else -1
        if depth > most:
            return True
    return False
