"""The training sequences of a rollout: token ids, which of them are trained on, and their log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, output_of, texts_of, turns
from nemo_gym.schemas.shapes import Item
from nemo_gym.training.trajectory import SAMPLED_IDS, NonContiguousTokens, Trajectory, sequences_of, trajectory_of
from nemo_gym.viewer import decoding
from nemo_gym.viewer.shortening import cut

MOST_TOKENS = 200_000
"""The maximum number of tokens in one response, over all sequences together."""


def tokens_of(record: JsonObject, tokenizer: str | None = None) -> Mapping[str, object]:
    """Return the tokens of a rollout (type `Tokens` in api.ts), decoded with `tokenizer` (see `decoding.texts_of`).

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
    problem = _add_texts(record, shown, tokenizer) or problem
    first = sequences[0]
    return {
        "sequences": shown, "is_masked": first.is_masked, "mask_reason": first.mask_reason, "problem": problem
    }  # fmt: skip


def _add_texts(record: JsonObject, shown: Sequence[JsonObject], tokenizer: str | None) -> str | None:
    """Add the text of each token and of each turn, if it is known. Return the reason if tokens cannot be decoded."""
    said = [turn for turn in turns(output_of(record)) if any(SAMPLED_IDS in item for item in turn)]
    parts = [part for each in shown for part in each["turns"]]
    # If a turn is missing, it is not known which text belongs to which turn.
    texts = ["\n".join(_text_in(turn)) for turn in said] if len(said) == len(parts) else [""] * len(parts)
    for part, text in zip(parts, texts, strict=True):
        part["text"] = cut(text)
    try:
        for each in shown:
            each["texts"] = decoding.texts_of(each["ids"], tokenizer, object_at(record, "response").get("model"))
    except DataError as error:
        return str(error)
    return None


def _text_in(turn: Sequence[Item]) -> Iterator[str]:
    for item in turn:
        yield from texts_of(item.get("summary") or item.get("content"))
        if "arguments" in item:
            yield f"{item.get('name')} {item['arguments']}"


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
    parts: list[Mapping[str, int]] = []
    for turn in sequence.turns:
        start = len(ids) + len(turn.context_ids)
        end = start + len(turn.sampled_ids)
        ids += [*turn.context_ids, *turn.sampled_ids]
        # If the rollout is masked, mask the sampled tokens, too, because masked rollouts are not used for training.
        mask += [0] * len(turn.context_ids) + [int(not sequence.is_masked)] * len(turn.sampled_ids)
        logprobs += [None] * len(turn.context_ids) + [round(float(each), 5) for each in turn.log_probs]
        if start < most:
            parts.append({"start": start, "end": min(end, most)})
    return {
        "ids": ids[:most], "mask": mask[:most], "logprobs": logprobs[:most],
        "prompt_length": min(len(sequence.prompt_ids), most), "turns": parts, "texts": None,
    }  # fmt: skip
