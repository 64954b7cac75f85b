"""Replace the lone surrogates of a JSON text, because a response that repeats them cannot be encoded."""

from __future__ import annotations

import re

REPLACEMENT = rb"\ufffd"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def without_lone_surrogates(text: bytes) -> bytes:
    r"""Replace the lone surrogates in a JSON text with U+FFFD. For example, a cut emoji leaves a lone `\ud83d`."""
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda escape: REPLACEMENT if escape["lone"] else escape[0], text)
