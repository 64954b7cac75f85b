"""How the answer to the current model call is recorded, for code between the author's method and the reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

RecordAnswer = Callable[[object], Awaitable[None]]
"""Stores the tokens of an answer, before which the answer must not be passed on."""

recorder: ContextVar[RecordAnswer | None] = ContextVar("nemo_gym_token_recorder", default=None)
"""None if the tokens of the current call are not recorded."""
