"""The open sessions of an agent. Each is set up and closed by the agent's hooks. Idle sessions are closed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.context.deadline import GRACE_S
from nemo_gym.errors import AgentFailed
from nemo_gym.schemas.sessions import AgentCloseSessionRequest, AgentCloseSessionResponse, AgentSeedSessionRequest

logger = logging.getLogger(__name__)

Hook = Callable[[Any], object]


@dataclass
class AgentSessionState:
    """State of one session of an agent. Subclass it to keep more than the request that opened the session."""

    request: AgentSeedSessionRequest


class AgentSessionSetupError(Exception):
    """Error of a session setup that fails after opening resources. `state` is released, and `error` is reported."""

    def __init__(self, state: AgentSessionState, *, error: BaseException) -> None:
        super().__init__(str(error))
        self.state = state
        self.error = error


@dataclass(slots=True)
class _Session:
    request: AgentSeedSessionRequest
    setup: asyncio.Task[AgentSessionState]
    used_at: float = field(default_factory=time.monotonic)
    cookie_ids: set[str] = field(default_factory=set)


class AgentSessions:
    """The open sessions of an agent, by their ids."""

    def __init__(self, server: str, *, set_up: Hook, close: Hook, idle_s: float) -> None:
        """Initialise with two hooks: `set_up` returns the state for a seed request, and `close` releases a state."""
        self.server = server
        self.idle_s = idle_s
        self._set_up, self._close = set_up, close
        self._sessions: dict[str, _Session] = {}
        self._ids: dict[str, str] = {}
        """The id of the agent session that was opened last with each session cookie. The keys are the cookies' ids."""
        self._closing: set[asyncio.Task[AgentCloseSessionResponse]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, request: AgentSeedSessionRequest, cookie_id: str) -> None:
        """Set up a session. A repeated request waits for the setup that the first request started.

        Raise `AgentFailed` if another episode has a session with this id.
        """
        session_id = request.agent_session_id
        session = self._sessions.get(session_id)
        if session is None:
            setup = asyncio.create_task(self._state_of(request))
            session = self._sessions[session_id] = _Session(request, setup)
        elif session.request != request:
            raise self._conflict(session_id)
        try:
            # If the caller hangs up, the setup continues for the caller's next attempt, until the session is closed.
            await asyncio.shield(session.setup)
        except Exception:
            self._sessions.pop(session_id, None)
            raise
        session.used_at = time.monotonic()
        self._ids[cookie_id] = session_id
        session.cookie_ids.add(cookie_id)

    def id_of(self, cookie_id: str) -> str | None:
        """Return the id of the agent session last opened with this cookie, or None if no such session is open."""
        return self._ids.get(cookie_id)

    def state_of(self, session_id: str | None) -> AgentSessionState | None:
        """Return the state of a session, or None if that session is not ready."""
        session = self._sessions.get(session_id or "")
        if session is None or not session.setup.done():
            return None
        session.used_at = time.monotonic()
        return session.setup.result()

    async def close(self, request: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        """Close a session and return the response of its hook. A session that was closed before has `closed: false`.

        Raise `AgentFailed` if another episode has a session with this id.
        """
        session = self._sessions.get(request.agent_session_id)
        if session is not None and session.request.episode_id != request.episode_id:
            raise self._conflict(request.agent_session_id)
        return await self._close_session(request.agent_session_id)

    def _conflict(self, session_id: str) -> AgentFailed:
        conflict = AgentFailed(
            f"{self.server}: agent_session_id '{session_id}' is already open for another episode. Use a new id "
            "for each session",
            server=self.server,
        )
        conflict.status = 409
        return conflict

    async def _close_session(self, session_id: str) -> AgentCloseSessionResponse:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return AgentCloseSessionResponse(closed=False)
        for cookie_id in session.cookie_ids:
            self._ids.pop(cookie_id, None)
        if not session.setup.done():
            session.setup.cancel()
            await asyncio.wait([session.setup])
        if session.setup.cancelled() or session.setup.exception() is not None:
            return AgentCloseSessionResponse()
        # Release the state in a separate task, because a caller that hangs up must not interrupt the release.
        closing = asyncio.create_task(self._release(session.setup.result()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return await asyncio.shield(closing)

    async def drop_all(self) -> None:
        """Close all sessions at shutdown. Give up on sessions that do not close in time."""
        closing = {asyncio.create_task(self._close_logged(session_id)) for session_id in self._sessions}
        if pending := closing | self._closing:
            await asyncio.wait(pending, timeout=GRACE_S)
        for task in closing | self._closing:
            task.cancel()

    async def reap(self) -> None:
        """Close the sessions that have been idle for `idle_s`, for as long as the server runs."""
        while True:
            await asyncio.sleep(min(60.0, max(self.idle_s / 4, 0.01)))
            earliest = time.monotonic() - self.idle_s
            idle = [session_id for session_id, session in self._sessions.items() if session.used_at < earliest]
            for session_id in idle:
                await self._close_logged(session_id)
            if idle:
                logger.warning(
                    "%s: closed %d agent sessions idle for more than %g s", self.server, len(idle), self.idle_s
                )

    async def _state_of(self, request: AgentSeedSessionRequest) -> AgentSessionState:
        try:
            state = await _awaited(self._set_up(request))
        except AgentSessionSetupError as failed:
            try:
                await self._release(failed.state)
            except Exception:
                # Only log this error, because the error of the setup is raised afterwards.
                logger.exception("closing the failed session %s failed", request.agent_session_id)
            raise failed.error from failed
        if not isinstance(state, AgentSessionState):
            problem = f"_seed_agent_session_state returned {type(state).__name__}. Return an AgentSessionState"
            raise AgentFailed(f"{self.server}: {problem}")
        return state

    async def _release(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        response = await _awaited(self._close(state))
        return response if isinstance(response, AgentCloseSessionResponse) else AgentCloseSessionResponse()

    async def _close_logged(self, session_id: str) -> None:
        try:
            await self._close_session(session_id)
        except Exception:
            # An error in one session must not keep the others open.
            logger.exception("closing the agent session %s failed", session_id)


async def _awaited(result: object) -> object:
    return await result if inspect.isawaitable(result) else result
