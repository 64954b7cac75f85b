"""The messages of a game that is played with reset and step."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from nemo_gym.schemas.rollout import BaseRunRequest, BaseVerifyRequest

STEP_REQUEST_ID_KEY = "_ng_step_request_id"
"""With a step: names the request, so that one that is sent again is not played again."""


class BaseResetRequest(BaseRunRequest):
    """The row, before the game begins. Subclasses type the fields that they use."""


class BaseResetResponse(BaseModel):
    """The game's beginning, as the model is told."""

    observation: str | None = None
    """Told to the model as the user's word; None where the row has said everything."""
    info: dict[str, Any] = Field(default_factory=dict)


class BaseStepRequest(BaseVerifyRequest):
    """The row, and in `response` the model's turn: this one alone. Subclasses type the fields that they use."""


class BaseStepResponse(BaseModel):
    """What the model's turn has led to."""

    observation: str | None = None
    """Told to the model as the user's word; None where there is nothing to tell."""
    reward: float = 0.0
    """What this turn has earned; the rollout's reward is the sum."""
    terminated: bool = False
    """The game has come to its end."""
    truncated: bool = False
    """The game was broken off."""
    info: dict[str, Any] = Field(default_factory=dict)
    """May hold `tool_outputs`, `[{call_id, output}]`: the answers to the calls of this turn."""
