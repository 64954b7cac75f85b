"""What the current task works for: which rollout, and until when. One context variable holds all of it."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_gym.http.deadline import Wait


class Work:
    """Nobody changes one: whoever has something else to say lays another one over it."""

    __slots__ = ("ends_at", "failures", "rollout_id", "waits")

    def __init__(
        self,
        rollout_id: str | None = None,
        ends_at: float | None = None,
        waits: list[Wait] | None = None,
        failures: list[dict[str, Any]] | None = None,
    ) -> None:
        self.rollout_id = rollout_id
        self.ends_at = ends_at
        """By the monotonic clock; None where nothing bounds it."""
        self.waits = waits
        """What is awaited just now, for whoever notes it."""
        self.failures = failures
        """Rows that calls were answered in place of a grade, for whoever notes them."""


NO_WORK = Work()

_work: ContextVar[Work] = ContextVar("nemo_gym_work", default=NO_WORK)

current_work = _work.get
"""What the current task works for."""


def begin_work(work: Work) -> Token[Work]:
    """Work for this from now on; the token goes to `end_work`."""
    return _work.set(work)


def end_work(token: Token[Work]) -> None:
    """Work for what was worked for before."""
    _work.reset(token)
