"""Join recorded calls into training sequences. In them, each prompt begins with all tokens of the call before."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from nemo_gym.capture.tokens.entry import FrozenTokens, TokenEntry

TokensT = TypeVar("TokensT", list[int], bytes)
"""A list of token ids, or the `text` of such a list as `Numbers`."""


class TokenTrajectories(NamedTuple):
    """A rollout's training sequences, with the reasons not to train on them, if any."""

    sequences: tuple[tuple[TokenEntry, ...], ...]
    """The calls of each sequence. Each prompt begins with all tokens of the calls before it in the sequence."""
    mask_reasons: tuple[str, ...] = ()
    """The reasons why the rollout must not be trained on; empty if it can be used."""
    retries: int = 0
    """The number of calls left out because another answer to the same prompt was used or has the same tokens."""


def trajectories_for_rollout(frozen: FrozenTokens) -> TokenTrajectories:
    """Return the training sequences of a rollout.

    A call whose prompt does not begin with the tokens of an earlier call begins a new sequence. Of several answers to
    one prompt, those are kept that a later call continues, and those of calls that ran at the same time, such as
    parallel sub-agents. If there are none and the answers differ, it is unknown which of them the agent used. All are
    then kept, and the rollout must not be trained on.
    """
    # Leave out calls that were cut off before their first token, because they have nothing to train on.
    entries = [each for each in frozen.entries if each.generation_token_ids]
    parents = _parents_of(entries)
    kept, undecidable = _without_retries(entries, parents)
    reasons = list(frozen.gaps)
    reasons += [
        f"a prompt has {count} answers, and no later call shows which of them was used" for count in undecidable
    ]
    if not kept and not reasons:
        reasons.append("no sampled tokens were recorded")
    sequences = sequences_of_calls(parents if len(kept) == len(entries) else _parents_of(kept))
    joined = tuple(tuple(kept[index] for index in sequence) for sequence in sequences)
    return TokenTrajectories(joined, tuple(reasons), retries=len(entries) - len(kept))


def _parents_of(entries: list[TokenEntry]) -> list[int | None]:
    return parents_of((each.prompt_token_ids.text, each.generation_token_ids.text) for each in entries)


class _Kept(NamedTuple):
    calls: list[TokenEntry]
    undecidable: list[int]
    """The number of answers to each prompt for which it is unknown which of them the agent used."""


def _without_retries(entries: list[TokenEntry], parents: list[int | None]) -> _Kept:
    continued = set(parents)
    answers = defaultdict(list)
    for index, entry in enumerate(entries):
        answers[entry.prompt_token_ids.text].append(index)
    kept: set[int] = set()
    undecidable = []
    for indices in answers.values():
        used = {at for at in indices if at in continued or _has_parallel(entries, at, indices)}
        if not used:
            # Keep only the last of equal answers, because training needs the same tokens only once.
            used = {indices[-1]}
            if len({entries[index].generation_token_ids.text for index in indices}) > 1:
                undecidable.append(len(indices))
                used = set(indices)
        kept |= used
    return _Kept([entry for index, entry in enumerate(entries) if index in kept], undecidable)


def _has_parallel(entries: list[TokenEntry], index: int, others: list[int]) -> bool:
    """Return whether another one of these calls ran at the same time. A program would not repeat a running call."""
    began_at, ended_at = entries[index].began_at, entries[index].created_at
    return began_at is not None and any(
        (began := entries[other].began_at) is not None and began < ended_at and began_at < entries[other].created_at
        for other in others
        if other != index
    )


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
