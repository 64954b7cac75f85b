"""How the answer to the current model call is recorded, for code between the author's method and the reply."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class AnswerRecorder(Protocol):
    """Records the answer to one call."""

    async def record(self, answer: object) -> None:
        """Store the tokens of an answer, which must not be passed on before."""

    def skip(self) -> None:
        """Accept that the call failed, so that there is no answer."""


recorder: ContextVar[AnswerRecorder | None] = ContextVar("nemo_gym_token_recorder", default=None)
"""None if the tokens of the current call are not recorded."""
