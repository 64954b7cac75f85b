"""The recorder of the current model call's answer. It runs after the author's method and before the answer is sent."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class AnswerRecorder(Protocol):
    """A recorder for the answer to one model call."""

    async def record(self, answer: object) -> None:
        """Store the tokens of an answer. The answer must not be sent before this method returns."""

    def skip(self) -> None:
        """Record nothing, because the call failed and there is no answer."""


recorder: ContextVar[AnswerRecorder | None] = ContextVar("nemo_gym_token_recorder", default=None)
"""The recorder for the current model call; None if its tokens are not recorded."""
