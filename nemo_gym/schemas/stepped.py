"""The requests and responses of the routes `/reset` and `/step`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.rollout import BaseRunRequest, BaseVerifyRequest

STEP_REQUEST_ID_KEY = "_ng_step_request_id"
"""The field with the id of a step request. A retry with the same id does not repeat the step."""


class BaseResetRequest(BaseRunRequest):
    """The body of `/reset`: the row of the episode that starts. Subclasses declare the fields that they use."""


class BaseResetResponse(BaseModel):
    """The response to `/reset`: the first observation of an episode."""

    observation: str | None = None
    """Text to send to the model as a user message; None if the row's input already contains it."""
    info: JsonObject = Field(default_factory=dict)


class BaseStepRequest(BaseVerifyRequest):
    """The body of `/step`: the row, with only the model's latest turn in `response`.

    Subclasses declare the fields that they use.
    """


class BaseStepResponse(BaseModel):
    """The response to `/step`: the result of the model's turn in the game."""

    observation: str | None = None
    """Text to send to the model as a user message; None to send no message."""
    reward: float = 0.0
    """The reward of this turn; the rollout's reward is the sum."""
    terminated: bool = False
    """Whether the episode ended by the game's own rules."""
    truncated: bool = False
    """Whether the episode was cut off, for example by a limit on steps."""
    info: JsonObject = Field(default_factory=dict)
    """Additional data. The outputs of this turn's tool calls, if any, are in `tool_outputs`: `[{call_id, output}]`."""
