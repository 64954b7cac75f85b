"""Find the recorded tokens with which a prompt begins, so that only the rest of the prompt is stored."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from hashlib import sha256
from typing import NamedTuple

from nemo_gym.capture.tokens.numbers import Numbers

MOST_PREFIXES = 131_072
"""Prefixes that a process remembers, in about 40 MB. The next prompt of a forgotten rollout is stored whole."""
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


class Placement(NamedTuple):
    """The place of a call among the recorded ones."""

    longest: Prefix | None
    """The longest prefix with which its prompt begins."""
    added: tuple[Prefix, ...]
    """Its whole prompt, and the prompt with the sampled tokens."""


class Prefixes:
    """The prefixes of all rollouts that this process records."""

    def __init__(self, most: int = MOST_PREFIXES) -> None:
        self._most = most
        self._count = 0
        self._known: OrderedDict[bytes, list[Prefix]] = OrderedDict()

    def place(self, log: bytes, model_call_id: str, prompt: Numbers, sampled: Numbers) -> Placement:
        """Return the longest prefix with which a prompt begins, and the prefixes that the call itself adds.

        `log` is the unique name of the rollout's record.
        """
        known = self._known.get(log, [])
        text = memoryview(prompt.text)
        hashed, begin, longest = sha256(), 0, None
        for each in known:
            if each.length > len(text):
                break
            if each.length and text[each.length - 1] != _COMMA:
                continue
            # All prefixes are checked in one pass over the prompt.
            hashed.update(text[begin : each.length])
            begin = each.length
            if hashed.digest()[:DIGEST_BYTES] == each.digest:
                longest = each
        count = (
            prompt.text.count(b",") if longest is None else longest.tokens + prompt.text.count(b",", longest.length)
        )
        hashed.update(text[begin:])
        whole_prompt = Prefix(len(text), hashed.digest()[:DIGEST_BYTES], model_call_id, count)
        hashed.update(sampled.text)
        length = len(text) + len(sampled.text)
        whole = Prefix(length, hashed.digest()[:DIGEST_BYTES], model_call_id, count + len(sampled))
        return Placement(longest, (whole_prompt, whole))

    def remember(self, log: bytes, added: tuple[Prefix, ...]) -> None:
        """Let later prompts of a rollout begin with these prefixes, which must be stored by now."""
        known = self._known.setdefault(log, [])
        self._known.move_to_end(log)
        for each in added:
            insort(known, each)
        self._count += len(added)
        # The rollout of this call is the last one, and stays even if it has more prefixes than that.
        while self._count > self._most and len(self._known) > 1:
            self._count -= len(self._known.popitem(last=False)[1])
