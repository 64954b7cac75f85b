"""Which rollout the current task works for; it travels along every call between our servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_rollout_id: ContextVar[str | None] = ContextVar("nemo_gym_rollout_id", default=None)


def current_rollout_id() -> str | None:
    """The id of the rollout under way here; None outside of one."""
    return _rollout_id.get()


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Let everything awaited inside count as work for this rollout."""
    token = _rollout_id.set(rollout_id)
    try:
        yield
    finally:
        _rollout_id.reset(token)
