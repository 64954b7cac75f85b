"""The recorder for the answer to the current model call, which runs after the author's method, before the reply."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class AnswerRecorder(Protocol):
    """A recorder for the answer to one model call."""

    async def record(self, answer: object) -> None:
        """Store the tokens of an answer. The answer must not be sent before this returns."""

    def skip(self) -> None:
        """Record nothing, because the call failed and there is no answer."""


recorder: ContextVar[AnswerRecorder | None] = ContextVar("nemo_gym_token_recorder", default=None)
"""None if the tokens of the current call are not recorded."""
