"""Join a conversation's model calls into sequences. In them, each prompt begins with all tokens of the call before."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import TypeVar

TokensT = TypeVar("TokensT", list[int], bytes)
"""A list of token ids, or the `text` of such a list as `Numbers`."""


def parents_of(calls: Iterable[tuple[TokensT, TokensT]]) -> list[int | None]:
    """Return, for each call, the index of the earlier call that it continues, or None if there is no such call.

    A call is given as its prompt and its sampled tokens. A call continues an earlier call if its prompt begins with
    all tokens of that call. If several earlier calls fit, the longest one counts; among equally long ones, the last.
    """
    known: list[tuple[TokensT, TokensT]] = []
    by_length: list[tuple[int, int]] = []
    parents: list[int | None] = []
    for index, (prompt, sampled) in enumerate(calls):
        fitting = (at for length, at in reversed(by_length) if length <= len(prompt))
        parents.append(next((at for at in fitting if _begins(prompt, *known[at])), None))
        known.append((prompt, sampled))
        insort(by_length, (len(prompt) + len(sampled), index))
    return parents


def _begins(prompt: TokensT, earlier: TokensT, sampled: TokensT) -> bool:
    """Return whether a prompt begins with an earlier prompt and the tokens sampled after it."""
    if isinstance(prompt, bytes):
        # Compare without slices, because a slice would copy the text, which may be long.
        return prompt.startswith(sampled, len(earlier)) and prompt.startswith(earlier)
    end = len(earlier) + len(sampled)
    return prompt[len(earlier) : end] == sampled and prompt[: len(earlier)] == earlier


def sequences_of_calls(parents: Sequence[int | None]) -> list[list[int]]:
    """Return the indices of the calls of each sequence.

    A call continues the sequence that ends with its parent. It begins a new sequence if it has no parent, or if
    another call has continued the parent already. No call is in two sequences.
    """
    sequences: list[list[int]] = []
    for index, parent in enumerate(parents):
        for sequence in sequences:
            if sequence[-1] == parent:
                sequence.append(index)
                break
        else:
            sequences.append([index])
    return sequences
