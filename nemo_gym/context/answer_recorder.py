"""The recorder of the current model call's answer. It runs after the author's method and before the answer is sent."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

AnswerRecorder = Callable[[object], Awaitable[None]]
"""A function that stores the tokens of an answer, or of nothing if it is given the error of a failed call."""

recorder: ContextVar[AnswerRecorder | None] = ContextVar("nemo_gym_token_recorder", default=None)
"""The recorder for the current model call; None if its tokens are not recorded. Await it before sending an answer."""
