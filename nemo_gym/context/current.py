"""The context of the current asyncio task, such as its rollout and deadline, in a single context variable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from nemo_gym.context.policy import Policy
from nemo_gym.context.spent import Spent
from nemo_gym.errors import RolloutTimedOut


class Work(NamedTuple):
    """The immutable context of an asyncio task. To change a value, push a new `Work`."""

    rollout_id: str | None = None
    ends_at: float | None = None
    """The deadline on the monotonic clock; None if there is no deadline."""
    waits: list[Wait] | None = None
    """The operations that are being awaited, for the message of a timeout; None if they are not recorded."""
    on_reply: Callable[[Any], None] | None = None
    """A callback for the `Reply` to each call to another server; None if nothing observes the replies."""
    policy: Policy | None = None
    """The policy that the rollout's row names; None for the configured one."""
    spent: Spent | None = None
    """The collected time and tool calls of an agent's calls to other servers; None if they are not collected."""


NO_WORK = Work()

_work: ContextVar[Work] = ContextVar("nemo_gym_work", default=NO_WORK)

current_work = _work.get
"""Return the work of the current task."""


begin_work = _work.set
"""Push a `Work`. Pass the returned token to `end_work`."""

end_work = _work.reset
"""Restore the earlier `Work`, given the token that `begin_work` returned."""


class Wait:
    """An operation that is being awaited. If the deadline interrupts it, its record is kept for the error message."""

    __slots__ = ("_recorded", "trouble", "what")

    server: str | None = None
    """The server of the run that is being waited for, if any."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.trouble = ""
        """The reason why the wait still goes on, such as a failed try; empty if unknown."""
        self._recorded = current_work().waits

    def __enter__(self) -> Self:
        if self._recorded is not None:
            self._recorded.append(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if self._recorded is not None and not isinstance(error, asyncio.CancelledError | RolloutTimedOut):
            self._recorded.remove(self)

    def __str__(self) -> str:
        return f"{self.what} ({self.trouble})" if self.trouble else self.what
