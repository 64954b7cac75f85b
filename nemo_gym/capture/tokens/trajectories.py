"""The training sequences of a rollout, from the recorded tokens of its calls."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from nemo_gym.capture.tokens.entry import FrozenTokens, TokenEntry
from nemo_gym.capture.tokens.sequences import parents_of, sequences_of_calls


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
    one prompt, only those that a later call continues are kept. If no answer is continued and the answers differ, it
    is unknown which of them the agent used. All are then kept, and the rollout must not be trained on.
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


def _without_retries(entries: list[TokenEntry], parents: list[int | None]) -> tuple[list[TokenEntry], list[int]]:
    """Return the calls to keep.

    For each prompt, if it is unknown which of its answers the agent used, also return the number of answers.
    """
    continued = set(parents)
    answers = defaultdict(list)
    for index, entry in enumerate(entries):
        answers[entry.prompt_token_ids.text].append(index)
    left_out: set[int] = set()
    undecidable = []
    for indices in answers.values():
        used = continued.intersection(indices)
        if not used:
            # Keep only the last of equal answers, because training needs the same tokens only once.
            used = {indices[-1]}
            if len({entries[index].generation_token_ids.text for index in indices}) > 1:
                undecidable.append(len(indices))
                used = set(indices)
        left_out.update(set(indices) - used)
    return [entry for index, entry in enumerate(entries) if index not in left_out], undecidable
