"""The tokens of one model call, and the two interfaces through which they are stored and read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.errors import RolloutCancelled
from nemo_gym.jsonl import JsonObject


class RolloutFrozen(RolloutCancelled):
    """The error for a model call of a rollout whose tokens were already collected."""


@dataclass(frozen=True, kw_only=True)
class TokenEntry:
    """The tokens of one call, as the engine saw them: the prompt, and the tokens that the policy sampled."""

    rollout_id: str
    model_call_id: str
    prompt_token_ids: Numbers
    """The whole prompt."""
    generation_token_ids: Numbers
    """The sampled tokens."""
    generation_log_probs: Numbers
    """The natural logarithm of the policy's probability for each sampled token."""
    routed_experts: object = None
    """The choices of a mixture-of-experts router, as sent by the engine; None if it sent none."""
    output_items: list[JsonObject] = field(default_factory=list)
    """The answer as items of the Responses API, without tokens."""
    token_item_index: int = 0
    """The index of the output item that carries the tokens."""
    model: str | None = None
    created_at: float = 0.0
    """When the answer was complete, in seconds since the epoch."""
    schema_version: int = 1

    def check(self, *, prompt: bool = True) -> None:
        """Raise `ValueError` if the sampled tokens are unusable or, if `prompt` is true, the prompt's tokens."""
        if len(self.generation_token_ids) != len(self.generation_log_probs):
            sampled, known = len(self.generation_token_ids), len(self.generation_log_probs)
            raise ValueError(f"{sampled} sampled tokens, but {known} log-probabilities")
        self.generation_token_ids.checked(are_ids=True)
        self.generation_log_probs.checked(are_ids=False)
        if not 0 <= self.token_item_index < len(self.output_items):
            raise ValueError(
                f"token_item_index is {self.token_item_index}, but there are {len(self.output_items)} items"
            )
        if prompt:
            self.prompt_token_ids.checked(are_ids=True)


class FrozenTokens(NamedTuple):
    """All that was recorded of a rollout."""

    entries: tuple[TokenEntry, ...] = ()
    """The calls in the order in which they were completed."""
    gaps: tuple[str, ...] = ()
    """Descriptions, for people, of the tokens that are missing. A rollout with gaps must not be trained on."""


class TokenSink(Protocol):
    """Receiver of the tokens of calls in a model server's process. Methods may block; they run in a thread."""

    def put(self, entry: TokenEntry) -> None:
        """Store a call before its answer is passed on. Raise `RolloutFrozen` if the rollout is frozen."""

    def mark_incomplete(self, rollout_id: str, reason: str) -> None:
        """Record that a call of the rollout is missing."""

    def close(self) -> None:
        """Release the sink's resources, such as open files."""


class TokenSource(Protocol):
    """Provider of the tokens of rollouts to the collector. Methods may block; they run in a thread."""

    def freeze(self, rollout_id: str) -> FrozenTokens:
        """Return everything that was recorded of a rollout, and reject its later calls."""

    def drop(self, rollout_id: str) -> None:
        """Delete everything about a rollout, and reject its later calls until `close`."""

    def close(self) -> None:
        """Release the source's resources, such as open files."""
