"""Find the recorded tokens with which a prompt begins, so that only the rest of the prompt is stored."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from nemo_gym.capture.tokens.numbers import Numbers

MOST_ROLLOUTS = 16_384
"""Rollouts whose prefixes a process remembers. The prompt of an older rollout is stored whole."""
DIGEST_BYTES = 16
_COMMA = ord(",")


class Prefix(NamedTuple):
    """Tokens that were recorded: the prompt of a call, or all of it."""

    length: int
    """In bytes of text."""
    digest: bytes
    """Kept instead of the tokens, which would fill the memory of a server."""
    model_call_id: str
    tokens: int


class Prefixes:
    """The prefixes of all rollouts that this process records."""

    def __init__(self, most_rollouts: int = MOST_ROLLOUTS) -> None:
        self._most_rollouts = most_rollouts
        self._known: OrderedDict[bytes, list[Prefix]] = OrderedDict()

    def place(self, log: bytes, model_call_id: str, prompt: Numbers, sampled: Numbers) -> Prefix | None:
        """Return the longest prefix with which a prompt begins, None without one, and remember the call.

        `log` is the unique name of the rollout's record.
        """
        known = self._known.setdefault(log, [])
        self._known.move_to_end(log)
        text = memoryview(prompt.text)
        hashed, begin, longest = blake2b(digest_size=DIGEST_BYTES), 0, None
        for each in known:
            if each.length > len(text):
                break
            if each.length and text[each.length - 1] != _COMMA:
                continue
            # All prefixes are checked in one pass over the prompt.
            hashed.update(text[begin : each.length])
            begin = each.length
            if hashed.digest() == each.digest:
                longest = each
        hashed.update(text[begin:])
        count = len(prompt)
        insort(known, Prefix(len(text), hashed.digest(), model_call_id, count))
        hashed.update(sampled.text)
        insort(known, Prefix(len(text) + len(sampled.text), hashed.digest(), model_call_id, count + len(sampled)))
        while len(self._known) > self._most_rollouts:
            self._known.popitem(last=False)
        return longest
