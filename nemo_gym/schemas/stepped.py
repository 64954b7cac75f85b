"""Requests and responses of environments with reset and step."""

from __future__ import annotations

from pydantic import BaseModel, Field

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.rollout import BaseRunRequest, BaseVerifyRequest

STEP_REQUEST_ID_KEY = "_ng_step_request_id"
"""The id of a step request, so that a retry does not repeat the step."""


class BaseResetRequest(BaseRunRequest):
    """The row before the episode starts. Subclasses declare the fields that they use."""


class BaseResetResponse(BaseModel):
    """The first observation of an episode."""

    observation: str | None = None
    """Sent to the model as a user message; None if the row already has everything."""
    info: JsonObject = Field(default_factory=dict)


class BaseStepRequest(BaseVerifyRequest):
    """The row, with only the model's current turn in `response`. Subclasses declare the fields that they use."""


class BaseStepResponse(BaseModel):
    """The result of the model's turn."""

    observation: str | None = None
    """Sent to the model as a user message; None for no message."""
    reward: float = 0.0
    """The reward of this turn; the rollout's reward is the sum."""
    terminated: bool = False
    """Whether the episode ended by its own rules."""
    truncated: bool = False
    """Whether the episode was cut off, such as by a limit on steps."""
    info: JsonObject = Field(default_factory=dict)
    """May hold `tool_outputs`, `[{call_id, output}]`: the outputs for this turn's tool calls."""
