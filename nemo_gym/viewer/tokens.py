"""The training sequences of a rollout: token ids, which of them are trained on, and their log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.training.trajectory import NonContiguousTokens, Trajectory, sequences_of, trajectory_of

MOST_TOKENS = 200_000
"""The maximum number of tokens in one response, over all sequences together."""


def tokens_of(record: JsonObject) -> Mapping[str, object]:
    """Return the tokens of a rollout (type `Tokens` in api.ts).

    If a turn does not continue the tokens of the turns before it, the message in `problem` names that turn.
    """
    nothing = {"sequences": [], "is_masked": False, "mask_reason": None}
    try:
        sequences = sequences_of(record)
        problem = _break_of(record) if len(sequences) > 1 else None
        shown = _shown([each for each in sequences if each.turns])
    except DataError as error:
        return {**nothing, "problem": str(error)}
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError) as error:
        # Catch all these errors, because other programs may write values of any type into these fields.
        problem = f"The token fields of the record are not those of nemo_gym ({type(error).__name__}: {error})."
        return {**nothing, "problem": problem}
    total = sum(len(turn.context_ids) + len(turn.sampled_ids) for each in sequences for turn in each.turns)
    if total > MOST_TOKENS:
        problem = f"Only the first {MOST_TOKENS:,} of {total:,} tokens are shown; the raw record has all of them."
    if not shown and problem is None:
        problem = sequences[0].mask_reason or "The rollout does not have tokens."
    first = sequences[0]
    return {
        "sequences": shown, "is_masked": first.is_masked, "mask_reason": first.mask_reason, "problem": problem
    }  # fmt: skip


def _break_of(record: JsonObject) -> str | None:
    try:
        trajectory_of(record)
    except NonContiguousTokens as error:
        # Omit the end of the message, because it is advice for programmers.
        return str(error).removesuffix(" Use sequences_of, which returns each part.")
    return None


def _shown(sequences: Sequence[Trajectory]) -> list[JsonObject]:
    found: list[JsonObject] = []
    left = MOST_TOKENS
    for sequence in sequences:
        if left <= 0:
            break
        found.append(_sequence(sequence, left))
        left -= len(found[-1]["ids"])
    return found


def _sequence(sequence: Trajectory, most: int) -> JsonObject:
    """Return at most this many tokens of a training sequence, as on the page (in `Tokens` of api.ts)."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float | None] = []
    turns: list[Mapping[str, int]] = []
    for turn in sequence.turns:
        start = len(ids) + len(turn.context_ids)
        end = start + len(turn.sampled_ids)
        ids += [*turn.context_ids, *turn.sampled_ids]
        # If the rollout is masked, mask the sampled tokens, too, because masked rollouts are not used for training.
        mask += [0] * len(turn.context_ids) + [int(not sequence.is_masked)] * len(turn.sampled_ids)
        logprobs += [None] * len(turn.context_ids) + [round(float(each), 5) for each in turn.log_probs]
        if start < most:
            turns.append({"start": start, "end": min(end, most)})
    return {
        "ids": ids[:most], "mask": mask[:most], "logprobs": logprobs[:most],
        "prompt_length": min(len(sequence.prompt_ids), most), "turns": turns,
    }  # fmt: skip
