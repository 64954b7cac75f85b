"""Join the model calls of a conversation to sequences, in which each prompt begins with all tokens before it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import TypeVar

TokensT = TypeVar("TokensT", list[int], bytes)
"""Token ids, or the text of `Numbers`: both can be cut, joined and compared."""


def parents_of(calls: Iterable[tuple[TokensT, TokensT]]) -> list[int | None]:
    """Return, for each call's prompt and sampled tokens, the index of the call that it continues.

    That is the earlier call with the most tokens among those whose whole tokens begin the prompt; of several with the
    same tokens, the last one. None if there is no such call.
    """
    wholes: list[TokensT] = []
    by_length: list[tuple[int, int]] = []
    parents: list[int | None] = []
    for index, (prompt, sampled) in enumerate(calls):
        fitting = (at for length, at in reversed(by_length) if length <= len(prompt))
        parents.append(next((at for at in fitting if _begins(prompt, wholes[at])), None))
        wholes.append(prompt + sampled)
        insort(by_length, (len(wholes[-1]), index))
    return parents


def _begins(prompt: TokensT, whole: TokensT) -> bool:
    # No copy of the text.
    return prompt.startswith(whole) if isinstance(prompt, bytes) else prompt[: len(whole)] == whole


def sequences_of_calls(parents: Sequence[int | None]) -> list[list[int]]:
    """Return the indices of the calls of each sequence.

    A call continues the sequence that ends with its parent. If another call has continued it already, or if there is
    no parent, it begins a sequence, and its whole prompt is context there. So no call is in two sequences.
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
