"""State of a server's rollouts: created on first use, dropped when the rollout ends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from nemo_gym.errors import OutOfTurn, RolloutError
from nemo_gym.web.session_cookies import SESSION_ID_KEY

logger = logging.getLogger(__name__)


class SessionState(BaseModel):
    """State of one rollout. Subclass it and give every field a default.

    A tool, `seed_session` or `verify` with a parameter of the subclass's type receives this rollout's instance.
    It is created on first use. It is dropped after `verify` or `/close_session`, or if it has been idle too long.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def close(self) -> None:
        """Release what the state holds. Called when the state is dropped. An override may be a plain `def`."""


StateT = TypeVar("StateT", bound=SessionState)


def session_id_of(request: Request) -> str:
    """Return the id of a request's session, which identifies its rollout."""
    session_id: str = request.session[SESSION_ID_KEY]
    return session_id


@dataclass(slots=True)
class _Session:
    states: dict[type[SessionState], SessionState] = field(default_factory=dict)
    used_at: float = field(default_factory=time.monotonic)
    calls: int = 0
    """The number of calls that are using the states."""

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        self.used_at = time.monotonic()


class SessionStore:
    """The states of all running rollouts of one server."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._expired: set[str] = set()
        self._failures: dict[str, RolloutError] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str, kind: type[StateT]) -> StateT:
        """Return this rollout's instance of `kind`, creating it on first use.

        Raise `OutOfTurn` if the instance was dropped as idle, because a new one would be graded as if the
        model had done nothing.
        """
        if session_id in self._expired:
            raise OutOfTurn(
                f"the rollout's {kind.__name__} was dropped because it was idle for more than {self.idle_s:g} s. "
                "Increase session_idle_s in the server's config"
            )
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
        session.used_at = time.monotonic()
        state = session.states.get(kind)
        if state is None:
            state = session.states[kind] = kind()
        assert isinstance(state, kind)
        return state

    def in_use(self, session_id: str) -> AbstractContextManager[None]:
        """Return a context manager that keeps a rollout's states from counting as idle."""
        return self._sessions[session_id]

    def fail(self, session_id: str, failure: RolloutError) -> None:
        """Keep a rollout's first failure until `drop` is called for the rollout. Ignore later failures."""
        self._failures.setdefault(session_id, failure)

    def failure_of(self, session_id: str) -> RolloutError | None:
        """Return the recorded failure of a rollout; None if there is none."""
        return self._failures.get(session_id)

    async def drop(self, session_id: str) -> bool:
        """Forget a rollout and close its states. Return False if the rollout had no state."""
        self._expired.discard(session_id)
        self._failures.pop(session_id, None)
        return session_id in self._sessions and await self._close(session_id)

    async def drop_idle(self) -> int:
        """Drop the rollouts that have been idle for `idle_s`. Return their number."""
        dropped = 0
        for session_id, session in list(self._sessions.items()):
            if session.calls or session.used_at >= time.monotonic() - self.idle_s:
                continue
            if self._sessions.get(session_id) is not session:
                # Skip it, because the rollout has ended or begun again while another one was closed.
                continue
            self._expired.add(session_id)
            dropped += await self._close(session_id)
        if dropped:
            logger.warning("dropped %d sessions idle for more than %g s", dropped, self.idle_s)
        return dropped

    async def drop_all(self) -> None:
        """Drop all rollouts, at shutdown."""
        for session_id in list(self._sessions):
            await self.drop(session_id)

    async def _close(self, session_id: str) -> bool:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        for state in session.states.values():
            try:
                closing: object = state.close()
                if inspect.isawaitable(closing):
                    await closing
            except Exception:
                # An error in one `close` must not keep the other states open.
                logger.exception("closing %s of session %s failed", type(state).__name__, session_id)
        return True

    async def reap(self) -> None:
        """Drop idle rollouts at regular intervals until this task is cancelled."""
        while True:
            await asyncio.sleep(min(60.0, max(self.idle_s / 4, 0.01)))
            await self.drop_idle()
