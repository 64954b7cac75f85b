"""Find the recorded tokens with which a prompt begins, so that only the rest of the prompt is stored."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from hashlib import sha256
from typing import NamedTuple

from nemo_gym.capture.tokens.numbers import Numbers

MOST_PREFIXES = 131_072
"""Maximum number of prefixes that a process remembers. They take about 40 MB.

If the prefixes of a rollout are forgotten, its next prompt is stored completely.
"""
DIGEST_BYTES = 16
_COMMA = ord(",")


class Prefix(NamedTuple):
    """Recorded tokens with which a later prompt may begin: a call's prompt, or its prompt and sampled tokens."""

    length: int
    """The length of the tokens' text in bytes."""
    digest: bytes
    """The hash of the tokens' text. It is kept instead of the tokens, which would fill the memory of a server."""
    model_call_id: str
    tokens: int


class Placement(NamedTuple):
    """The longest recorded prefix of a call's prompt, and the prefixes that the call itself adds."""

    longest: Prefix | None
    """The longest recorded prefix with which the call's prompt begins."""
    added: tuple[Prefix, ...]
    """The call's own prefixes: its prompt, and its prompt with the sampled tokens."""


class Prefixes:
    """The known prefixes of the prompts of all rollouts that this process records."""

    def __init__(self, most: int = MOST_PREFIXES) -> None:
        self._most = most
        self._count = 0
        self._known: OrderedDict[bytes, list[Prefix]] = OrderedDict()

    def place(self, log: bytes, model_call_id: str, prompt: Numbers, sampled: Numbers) -> Placement:
        """Return the longest known prefix of a call's prompt, and the prefixes that the call itself adds.

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
            # Continue the hash of the previous prefix, so that one pass over the prompt checks all prefixes.
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
        """Remember a call's prefixes for the later prompts of its rollout. The call must be stored already."""
        known = self._known.setdefault(log, [])
        self._known.move_to_end(log)
        for each in added:
            insort(known, each)
        self._count += len(added)
        # Forget the least recently used rollouts. This call's rollout is kept, even if it alone exceeds the limit.
        while self._count > self._most and len(self._known) > 1:
            self._count -= len(self._known.popitem(last=False)[1])
