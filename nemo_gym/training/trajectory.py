"""Training sequences of a rollout: its token ids, which of them the policy sampled, and their log-probabilities.

A model server that returns token ids adds three fields to an item of each model turn: the ids of the whole prompt, the
ids that the policy sampled, and a log-probability for each sampled id. The prompt of a later turn normally begins with
all tokens of the conversation so far. The rest of the prompt is text of the environment, such as the results of tools.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

from nemo_gym.capture.tokens.sequences import parents_of, sequences_of_calls
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at, objects_in, turns
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import Item
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS

Version = int | str
"""The version of a policy: the number of `TrainingClient.set_policy`, or what the engine reports about its weights."""
TOKENS = PROMPT_IDS, SAMPLED_IDS, LOG_PROBS = REQUIRED_TOKEN_METADATA_FIELDS
POLICY_MOMENTS_KEY = "policy_versions"
"""The key of a result for the versions of its policy: for each, its time in seconds since the epoch and its number."""
FULL_CONTEXT = "the prompt left no room in the model's context"


class InvalidTokens(DataError):
    """The error for a model turn without token ids, or with token fields that contradict each other."""


class NonContiguousTokens(DataError):
    """The error for a turn whose prompt does not begin with the tokens of the turns before it."""

    def __init__(self, message: str, *, turn: int, position: int) -> None:
        super().__init__(message)
        self.turn = turn
        """The number of the turn, from 1."""
        self.position = position
        """The index of the first differing token in the turn's prompt, or the length of a prompt that is too short."""


class Turn(NamedTuple):
    """One call of the policy within a sequence."""

    context_ids: list[int]
    """The tokens between the previous turn and this one, or the whole prompt for the first turn."""
    sampled_ids: list[int]
    log_probs: list[float]
    """The natural logarithm of the policy's probability for each sampled token."""
    routed_experts: object = None
    """The choices of a mixture-of-experts router as sent by the inference engine, or None if it sent none."""
    spans: Sequence[JsonObject] | None = None
    """When the tokens were sampled; see `sampling_spans` in the row. None if the model server does not say it."""
    versions: tuple[Version | None, ...] = ()
    """The version of the policy that sampled each token; see `Trajectory.versions`."""


class TrlFields(TypedDict):
    """The fields of one rollout for TRL's `rollout_func`."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    env_mask: list[int]
    env_reward: float | None


@dataclass(frozen=True)
class Trajectory:
    """One training sequence. Token ids, mask and log-probabilities are plain lists."""

    turns: tuple[Turn, ...]
    """The model turns in order. There are none if the rollout failed, or if the prompt filled the model's context."""
    reward: float | None
    """The rollout's reward, or None if the rollout failed. A failure does not count as a reward of 0."""
    reward_components: JsonObject
    """The parts of the reward, if the verifier names them."""
    mask_reason: str | None = None
    """The reason why the sequence must not be trained on, or None if it may be trained on."""

    @property
    def is_masked(self) -> bool:
        """Whether the sequence must not be trained on."""
        return self.mask_reason is not None

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the first sampled one."""
        return self.turns[0].context_ids if self.turns else []

    @property
    def completion_ids(self) -> list[int]:
        """All tokens after the prompt: those that the policy sampled, and the environment's tokens between them."""
        return [token for part in self._parts() for token in (*part.context_ids, *part.sampled_ids)]

    @property
    def mask(self) -> list[int]:
        """A list with 1 for each token of `completion_ids` that the policy sampled, and 0 for the others."""
        return [bit for part in self._parts() for bit in [0] * len(part.context_ids) + [1] * len(part.sampled_ids)]

    @property
    def logprobs(self) -> list[float]:
        """The log-probability of each token of `completion_ids`. It is 0.0 for the environment's tokens."""
        return [number for part in self._parts() for number in [0.0] * len(part.context_ids) + part.log_probs]

    @property
    def versions(self) -> list[Version | None]:
        """The version of the policy for each token of `completion_ids`; None for the environment's tokens.

        It is what the engine reports about its weights, or else what `TrainingClient.set_policy` had set when the call
        began. If the weights changed during the call, some of its tokens may be newer. Without a `TrainingClient`, an
        unreported version is None.
        """
        parts = self._parts()
        return [each for part in parts for each in (*[None] * len(part.context_ids), *part.versions)]

    def as_nemo_rl(self) -> JsonObject:
        """Return the sequence as NeMo RL's message log: for each turn, the context and the sampled tokens.

        NeMo RL expects tensors, so the caller has to convert each list of numbers to a tensor.
        """
        log: list[JsonObject] = []
        for turn in self.turns:
            sampled: JsonObject = {"role": "assistant", "content": "", "token_ids": turn.sampled_ids}
            sampled["generation_logprobs"] = turn.log_probs
            if turn.routed_experts is not None:
                sampled["routed_experts"] = turn.routed_experts
            log += [{"role": "user", "content": "", "token_ids": turn.context_ids}, sampled]
        return {
            "message_log": log,
            "input_message_log": log[:1],
            "reward": self.reward,
            "instance_config": {"mask_sample": self.is_masked},
        }

    def as_trl(self) -> TrlFields:
        """Return one rollout's fields for TRL's `rollout_func`. A masked rollout has a mask of zeros and no reward."""
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "env_mask": self._trained_mask(),
            "env_reward": self._trained_reward(),
        }

    def as_verl(self) -> JsonObject:
        """Return the fields of verl's `AgentLoopOutput`. A masked rollout has a mask of zeros and no reward."""
        return {
            "prompt_ids": self.prompt_ids,
            "response_ids": self.completion_ids,
            "response_mask": self._trained_mask(),
            "response_logprobs": self.logprobs,
            "reward_score": self._trained_reward(),
            "num_turns": len(self.turns),
        }

    def as_slime(self) -> JsonObject:
        """Return the fields of `Sample.from_dict` of slime and miles. A masked rollout is removed; its reward is None.

        `weight_versions` has the versions of each turn as text.
        """
        versions = [version for turn in self.turns for version in dict.fromkeys(turn.versions)]
        return {
            "tokens": [*self.prompt_ids, *self.completion_ids],
            "response_length": len(self.mask),
            "loss_mask": self._trained_mask(),
            "rollout_log_probs": self.logprobs,
            "weight_versions": [str(version) for version in versions if version is not None],
            "reward": self._trained_reward(),
            "remove_sample": self.is_masked,
            "status": "failed" if self.is_masked else "completed",
        }

    def as_skyrl(self) -> JsonObject:
        """Return one entry of each list of SkyRL's `GeneratorOutput`. The reward of a masked rollout is None."""
        return {
            "prompt_token_ids": self.prompt_ids,
            "response_ids": self.completion_ids,
            "loss_masks": self._trained_mask(),
            "rollout_logprobs": self.logprobs,
            "rewards": self._trained_reward(),
        }

    def as_openrlhf(self) -> JsonObject:
        """Return the response of OpenRLHF's `AgentExecutorBase.execute`, without the prompt and the label.

        A masked rollout has no `action_ranges`, and its reward is None.
        """
        ranges = [(len(prompt), len(prompt) + len(turn.sampled_ids)) for prompt, turn in self._calls()]
        return {
            "observation_tokens": [*self.prompt_ids, *self.completion_ids],
            "action_ranges": [] if self.is_masked else ranges,
            "rollout_log_probs": [0.0] * len(self.prompt_ids) + self.logprobs,
            "reward": self._trained_reward(),
            "scores": self._trained_reward(),
            "truncated": False,
            "extra_logs": {},
        }

    def as_tinker(self) -> list[JsonObject]:
        """Return the fields of the tinker cookbook's `Transition` for each turn, without the reward of the rollout.

        The caller has to convert `ob` and `ac`. The cookbook does not train on the turns of a masked rollout.
        """
        metrics = {"parse_error_masked": 1.0} if self.is_masked else {}
        return [
            {
                "ob": prompt,
                "ac": {"tokens": turn.sampled_ids, "maybe_logprobs": turn.log_probs},
                "reward": 0.0,
                "episode_done": turn is self.turns[-1],
                "metrics": metrics,
            }
            for prompt, turn in self._calls()
        ]

    def as_art(self) -> list[JsonObject]:
        """Return the fields of a `Choice` for each turn, for the `messages_and_choices` of ART's `Trajectory`.

        The caller has to convert them. For a masked rollout, the list is empty, because ART does not know masks.
        """
        choices: list[JsonObject] = []
        for prompt, turn in [] if self.is_masked else self._calls():
            pairs = zip(turn.sampled_ids, turn.log_probs, strict=True)
            tokens = [{"token": f"token_id:{token}", "logprob": each, "top_logprobs": []} for token, each in pairs]
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}
            ids = {"prompt_token_ids": prompt, "token_ids": turn.sampled_ids}
            choices.append(choice | ids | {"logprobs": {"content": tokens}})
        return choices

    def _trained_reward(self) -> float | None:
        return None if self.is_masked else self.reward

    def _calls(self) -> Iterator[tuple[list[int], Turn]]:
        """Yield each turn with the whole prompt of its call."""
        prompt: list[int] = []
        for turn in self.turns:
            prompt = prompt + turn.context_ids
            yield prompt, turn
            prompt = prompt + turn.sampled_ids

    def _trained_mask(self) -> list[int]:
        mask = self.mask
        return [0] * len(mask) if self.is_masked else mask

    def _parts(self) -> tuple[Turn, ...]:
        """Return the turns. The first one has an empty context instead of the prompt."""
        return (self.turns[0]._replace(context_ids=[]), *self.turns[1:]) if self.turns else ()


def trajectory_of(result: JsonObject) -> Trajectory:
    """Return the only training sequence of a rollout, from its result row.

    Raise `NonContiguousTokens` if the rollout has several sequences, and `InvalidTokens` if tokens are missing or
    inconsistent. Nothing is tokenized again, repaired or cut off. A failed rollout has a masked sequence without
    turns.
    """
    sequences = sequences_of(result)
    if len(sequences) > 1:
        if Row(result).token_capture is None:
            _check_continuity(_calls_in(Row(result)))
        # The calls were recorded apart from the response, so compare the first two sequences, not adjacent turns.
        first, second = (each.turns for each in sequences[:2])
        whole = [token for turn in first for token in (*turn.context_ids, *turn.sampled_ids)]
        raise _broken(len(first) + 1, second[0].context_ids, whole)
    return sequences[0]


def sequences_of(result: JsonObject) -> list[Trajectory]:
    """Return the training sequences of a rollout. There are several if its conversation forks.

    A conversation forks if an agent shortens the history, if a sub-agent has its own history, or if earlier text is
    tokenized differently in a later prompt. Each turn continues the earlier turn whose tokens are the longest prefix
    of its prompt. If there is no such turn, it begins a new sequence. So each sampled token is trained on once, and is
    only context in other sequences. Recorded calls (`token_id_capture`) are included.
    """
    row = Row(result)
    outcome = Trajectory((), row.reward, object_at(result, "reward_components"), _mask_reason(row))
    if row.failure_class is not None:
        return [replace(outcome, reward=None)]
    if not _output(row) and _lacked_room(row):
        return [replace(outcome, mask_reason=outcome.mask_reason or FULL_CONTEXT)]
    recorded = row.token_capture
    if recorded is None:
        sequences = _joined(list(_calls_in(row)))
    else:
        sequences = [tuple(map(_recorded_turn, turns)) for turns in recorded["branches"]]
        sequences += _joined(list(_calls_in(row, are_recorded=True))) if recorded["is_rebuilt"] else []
    moments = result.get(POLICY_MOMENTS_KEY) or ()
    known = (tuple(turn._replace(versions=_versions_of(turn, moments)) for turn in turns) for turns in sequences)
    return [replace(outcome, turns=turns) for turns in known] or [outcome]


def _versions_of(turn: Turn, moments: Sequence[tuple[float, int]]) -> tuple[Version | None, ...]:
    """Return the version of each sampled token, given when each version of the policy began."""
    versions: list[Version | None] = []
    for span in turn.spans or ({"tokens": len(turn.sampled_ids)},):
        version: Version | None
        reported = span.get("weight_version")
        if reported is not None:
            version = int(reported) if str(reported).isdecimal() else str(reported)
        else:
            began_at = span.get("began_at", -math.inf)
            # The rollout cannot have been sampled before it began, so earlier times are those of another clock.
            first = moments[0][1] if moments else None
            version = next((each for at, each in reversed(moments) if at <= began_at), first)
        versions += [version] * span["tokens"]
    return tuple(versions)


def _joined(calls: Sequence[Turn]) -> list[tuple[Turn, ...]]:
    """Join model calls into sequences. In `calls`, the context of each call is its whole prompt."""
    parents = parents_of((call.context_ids, call.sampled_ids) for call in calls)
    return [tuple(_turns_of([calls[at] for at in sequence])) for sequence in sequences_of_calls(parents)]


def _turns_of(calls: Iterable[Turn]) -> Iterator[Turn]:
    known = 0
    for call in calls:
        yield call._replace(context_ids=call.context_ids[known:])
        known = len(call.context_ids) + len(call.sampled_ids)


def _recorded_turn(turn: Mapping[str, Any]) -> Turn:
    return Turn(turn["context_ids"], turn["sampled_ids"], turn["log_probs"], *_optional(turn))


def _calls_in(row: Row, *, are_recorded: bool = False) -> Iterator[Turn]:
    """Yield each model turn with its whole prompt as the context. Raise `InvalidTokens` for a turn without tokens.

    If `are_recorded`, skip items without tokens, because the agent wrote them itself or they are in other sequences.
    """
    number = 0
    for items in turns(_output(row)):
        with_tokens = [item for item in items if any(item.get(name) is not None for name in TOKENS)]
        if not with_tokens and not are_recorded:
            raise _without_tokens(number + 1)
        for item in with_tokens:
            number += 1
            yield _call_of(item, number)
    if not number:
        raise _without_tokens(1)


def _output(row: Row) -> list[Item]:
    """Return the items of the response, without the empty message at the end that a full context causes."""
    items = objects_in((row.response or {}).get("output"))
    return items[:-1] if _lacked_room(row) else items


def _lacked_room(row: Row) -> bool:
    """Return whether the rollout ended because the context had no room for another token."""
    response = row.response or {}
    details, output = response.get("incomplete_details"), response.get("output")
    if not isinstance(details, dict) or details.get("reason") != "max_output_tokens" or not output:
        return False
    last = output[-1]
    if not isinstance(last, dict):
        return False
    parts = last.get("content") or ()
    says_something = last.get("type") != "message" or isinstance(parts, str) or any(part.get("text") for part in parts)
    return not says_something and all(last.get(name) is None for name in TOKENS)


def _without_tokens(turn: int) -> InvalidTokens:
    return InvalidTokens(
        f"turn {turn} has no token ids. Use a model server that returns them, such as vllm_model with "
        "return_token_id_information: true, and an agent that keeps them."
    )


def _call_of(item: Item, turn: int) -> Turn:
    prompt_ids, sampled_ids = (_numbers(item, name, turn, {int}) for name in (PROMPT_IDS, SAMPLED_IDS))
    log_probs = _numbers(item, LOG_PROBS, turn, {int, float})
    if not all(map(math.isfinite, log_probs)):
        raise InvalidTokens(f"turn {turn}: {LOG_PROBS} contains a number that is not finite.")
    if len(sampled_ids) != len(log_probs):
        raise InvalidTokens(f"turn {turn}: {len(sampled_ids)} sampled tokens, but {len(log_probs)} log-probabilities.")
    return Turn(prompt_ids, sampled_ids, log_probs, *_optional(item))


def _optional(fields: Mapping[str, Any]) -> tuple[object, Sequence[JsonObject] | None]:
    return fields.get("routed_experts"), fields.get("sampling_spans")


def _numbers(item: Item, name: str, turn: int, types: set[type]) -> list[Any]:
    numbers = item.get(name)
    if not isinstance(numbers, list) or not types.issuperset(map(type, numbers)):
        raise InvalidTokens(f"turn {turn}: {name} is not a list of {'integers' if types == {int} else 'numbers'}.")
    return numbers


def _check_continuity(calls: Iterable[Turn]) -> None:
    """Raise `NonContiguousTokens` for the first turn that does not continue the one before it."""
    before: list[int] = []
    for turn, call in enumerate(calls, start=1):
        prompt = call.context_ids
        if prompt[: len(before)] != before:
            raise _broken(turn, prompt, before)
        before = prompt + call.sampled_ids


def _broken(turn: int, prompt: list[int], before: list[int]) -> NonContiguousTokens:
    pairs = enumerate(zip(prompt, before, strict=False))
    position = next((at for at, (here, there) in pairs if here != there), len(prompt))
    found = f"it has token {prompt[position]}" if position < len(prompt) else "it ends"
    return NonContiguousTokens(
        f"turn {turn}: its prompt does not continue the turns before it. At position {position} {found}, but the "
        f"earlier turns have token {before[position]}. Use sequences_of, which returns each part.",
        turn=turn,
        position=position,
    )


def _mask_reason(row: Row) -> str | None:
    if row.failure_class is not None:
        return f"{row.failure_class}: {row.failure_message or 'no message'}"
    recorded = row.token_capture
    if recorded is not None and recorded["mask_reasons"]:
        return "; ".join(recorded["mask_reasons"])
    if row.is_masked:
        return str(row.fields.get("failure_reason") or "mask_sample")
    return None if row.reward is not None else "the rollout has no reward"
