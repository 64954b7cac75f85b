"""The tokens of one model call, and the two interfaces through which they are stored and read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.errors import RolloutCancelled
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.shapes import Item


class RolloutFrozen(RolloutCancelled):
    """The error for a model call of a rollout whose tokens were already collected."""


@dataclass(frozen=True, kw_only=True)
class TokenEntry:
    """The tokens of one call, as the engine saw them: the prompt, and the tokens that the policy sampled."""

    rollout_id: str
    model_call_id: str
    prompt_token_ids: Numbers
    """The token ids of the whole prompt."""
    generation_token_ids: Numbers
    generation_log_probs: Numbers
    """The natural logarithm of the policy's probability for each sampled token."""
    routed_experts: object = None
    """The choices of a mixture-of-experts router, as sent by the engine; None if it did not send any."""
    sampling_spans: list[JsonObject] | None = None
    """When the tokens were sampled, and with which weights; see `TokenIDLogProbMixin`."""
    output_items: list[Item] = field(default_factory=list)
    """The answer as items of the Responses API, without tokens."""
    token_item_index: int = 0
    """The index of the output item that had the tokens."""
    model: str | None = None
    created_at: float = 0.0
    """The time at which the answer was complete, in seconds since the epoch."""
    began_at: float | None = None
    """The time at which the request arrived."""
    schema_version: int = 1

    def check(self, *, prompt: bool = True) -> None:
        """Raise `ValueError` if tokens are unusable. The prompt's tokens are checked only if `prompt` is true."""
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
    """All recorded tokens of a rollout, and the gaps in the record."""

    entries: tuple[TokenEntry, ...] = ()
    """The calls in the order in which they were completed."""
    gaps: tuple[str, ...] = ()
    """Readable descriptions of the missing tokens. A rollout with gaps must not be trained on."""


class TokenSink(Protocol):
    """A store for the tokens of calls, used in a model server's process. Its methods may block."""

    def put(self, entry: TokenEntry) -> None:
        """Store a call before its answer is passed on. Raise `RolloutFrozen` if the tokens were already collected."""

    def mark_incomplete(self, rollout_id: str, reason: str) -> None:
        """Record that a call of the rollout is missing."""

    def close(self) -> None:
        """Release the sink's resources, such as open files."""


class TokenSource(Protocol):
    """A source from which the collector reads the tokens of rollouts. Methods run in a thread, so they may block."""

    def freeze(self, rollout_id: str) -> FrozenTokens:
        """Return everything that was recorded for a rollout, and reject later model calls of the rollout."""

    def drop(self, rollout_id: str) -> None:
        """Delete everything about a rollout, and reject later calls of the rollout until `close`."""

    def close(self) -> None:
        """Release the source's resources, such as open files."""
