"""A `rollout_func` for TRL: rollouts on the servers of a run, with the tokens that the run's policy sampled."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from nemo_gym.errors import DataError, UsageError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.shapes import MessageJson
from nemo_gym.text import counted
from nemo_gym.training.client import SyncTrainingClient
from nemo_gym.training.group import Rollout
from nemo_gym.training.trajectory import TrlFields
from nemo_gym.training.trl.prompts import row_of

if TYPE_CHECKING:
    from trl import GRPOTrainer

logger = logging.getLogger(__name__)


class Rollouts:
    """A `rollout_func` for `GRPOTrainer`, with its reward function. Use it as a context manager.

    The run's policy server must return tokens and must serve the trainer's current weights. Make the dataset with
    `nemo_gym.training.trl.dataset`.
    """

    def __init__(
        self,
        head: str = "http://127.0.0.1:11000",
        *,
        sampling: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> None:
        """Take the arguments of `TrainingClient` as `settings`, but reject `failed_rollouts="drop"`.

        `sampling` overrides sampling parameters of each request. By default, requests have the trainer's `temperature`
        and `top_p`, and each turn is limited to the trainer's `max_completion_length`.
        """
        if settings.get("failed_rollouts") == "drop":
            raise UsageError("failed_rollouts='drop': TRL needs one rollout for each prompt. Use 'mask' or 'raise'.")
        self._client = SyncTrainingClient(head, **settings)
        self._sampling = dict(sampling or {})

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)

    def __call__(self, prompts: Sequence[Sequence[MessageJson]], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Run one rollout for each prompt, and return the fields of all rollouts in the order of the prompts.

        A failed or masked rollout has a mask of zeros and the reward None, so it does not change the policy.
        """
        # Run each prompt as a separate task, because TRL may divide a group of equal prompts between processes.
        rows = [_row_of(prompt) for prompt in prompts]
        places = {id(row): place for place, row in enumerate(rows)}
        found: dict[int, Mapping[str, Any]] = {}
        masked: list[str] = []
        filler = _end_token_of(trainer)
        for group in self._client.rollouts(rows, sampling=_sampling_of(trainer) | self._sampling):
            fields, problem = _fields_of(group.rollouts[0])
            found[places[id(group.row)]] = _filled(fields, filler)
            masked += [problem] if problem else []
        if masked:
            share = f"{len(masked)} of {counted(len(rows), 'rollout')}"
            logger.warning("%s cannot be used for training. The first problem: %s", share, masked[0])
        return {name: [found[place][name] for place in range(len(rows))] for name in found[0]} if found else {}

    @staticmethod
    def reward(env_reward: list[float | None], **_: object) -> list[float | None]:
        """Return the verifier's rewards. Pass this function as `GRPOTrainer(reward_funcs=…)`."""
        return env_reward


def _row_of(prompt: Sequence[MessageJson]) -> JsonObject:
    row = row_of(prompt)
    if row is None:
        raise DataError(
            "a prompt of the dataset does not contain its row. Make the dataset with "
            "nemo_gym.training.trl.dataset(rows)."
        )
    return row


def _sampling_of(trainer: GRPOTrainer) -> dict[str, object]:
    return {
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "max_output_tokens": trainer.max_completion_length,
    }


def _fields_of(rollout: Rollout) -> tuple[TrlFields, str | None]:
    """Return a rollout's fields for TRL, and the reason why the rollout must not be trained on (None if it may be)."""
    first, *others = rollout.sequences()
    if others:
        problem = (
            f"its conversation has {len(others) + 1} token sequences, but TRL takes one. Perhaps the agent shortens "
            "the history, or the chat template changes earlier turns"
        )
        return {**first.as_trl(), "env_mask": [0] * len(first.mask), "env_reward": None}, problem
    return first.as_trl(), first.mask_reason


def _filled(fields: TrlFields, filler: int) -> TrlFields:
    """Fill an empty prompt or completion with a token that the mask excludes, because TRL fails without tokens."""
    if not fields["completion_ids"]:
        fields = {**fields, "completion_ids": [filler], "logprobs": [0.0], "env_mask": [0]}
    return fields if fields["prompt_ids"] else {**fields, "prompt_ids": [filler]}


def _end_token_of(trainer: GRPOTrainer) -> int:
    # `processing_class` is a tokenizer, or a vision model's processor that contains the tokenizer.
    processing = trainer.processing_class
    return int(getattr(processing, "tokenizer", processing).eos_token_id)
