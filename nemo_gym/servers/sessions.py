"""From a cookie to this rollout's state on the server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from http.cookies import SimpleCookie
from typing import Any, TypeVar
from uuid import uuid4

import itsdangerous
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

SESSION_ID_KEY = "session_id"
SESSION_MAX_AGE_S = 14 * 24 * 60 * 60


class SessionMiddleware:
    """Gives each request `request.session`, signed into a cookie that every response carries again.

    The cookie's form is that of Starlette's middleware of this name. It comes back on every response because
    agents keep only the cookies of the last one.
    """

    def __init__(self, app: ASGIApp, *, cookie: str, secret: str) -> None:
        self.app = app
        self.cookie = cookie
        self.signer = itsdangerous.TimestampSigner(secret)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        signed = self._cookie_of(scope)
        session = self._read(signed) if signed else None
        before = dict(session) if session is not None else None
        session = scope["session"] = session if session is not None else {}
        session.setdefault(SESSION_ID_KEY, uuid4().hex)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                # An unchanged session keeps its signature: signing again would cost and say nothing new.
                value = signed if session == before else self._write(session)
                MutableHeaders(scope=message).append(
                    "set-cookie", f"{self.cookie}={value}; path=/; Max-Age={SESSION_MAX_AGE_S}; httponly; samesite=lax"
                )
            await send(message)

        await self.app(scope, receive, send_with_cookie)

    def _cookie_of(self, scope: Scope) -> str | None:
        prefix = self.cookie.encode("latin-1") + b"="
        for name, value in scope["headers"]:
            if name == b"cookie" and prefix in value:
                jar: SimpleCookie = SimpleCookie(value.decode("latin-1"))
                return jar[self.cookie].value if self.cookie in jar else None
        return None

    def _read(self, signed: str) -> dict[str, Any] | None:
        try:
            data = self.signer.unsign(signed.encode("latin-1"), max_age=SESSION_MAX_AGE_S)
            session = json.loads(base64.b64decode(data))
        except (itsdangerous.BadSignature, ValueError):
            return None
        return session if isinstance(session, dict) else None

    def _write(self, session: dict[str, Any]) -> str:
        return self.signer.sign(base64.b64encode(json.dumps(session).encode())).decode("latin-1")


class SessionState(BaseModel):
    """What a server remembers of one rollout. Subclass it and give every field a default.

    A tool, `seed_session` or `verify` that has a parameter of the subclass's type receives this rollout's
    instance: made on first use, dropped after `verify`, after `/close_session` or after lying idle.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def close(self) -> None:
        """Free what the state holds; awaited when it is dropped."""


StateT = TypeVar("StateT", bound=SessionState)


class _Session:
    __slots__ = ("states", "used_at")

    def __init__(self) -> None:
        self.states: dict[type[SessionState], SessionState] = {}
        self.used_at = time.monotonic()


class SessionStore:
    """The states of all rollouts that are under way on one server."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str, kind: type[StateT]) -> StateT:
        """This rollout's instance of `kind`, made where there is none yet."""
        session = self._sessions.setdefault(session_id, _Session())
        session.used_at = time.monotonic()
        state = session.states.get(kind)
        if state is None:
            try:
                state = session.states[kind] = kind()
            except ValidationError as error:
                missing = ", ".join(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
                raise TypeError(
                    f"{kind.__name__} is a SessionState: give every field a default ({missing})"
                ) from error
        assert isinstance(state, kind)
        return state

    async def drop(self, session_id: str) -> bool:
        """Forget a rollout and close its states; False where nothing was kept of it."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        for state in session.states.values():
            try:
                await state.close()
            except Exception:
                # One state's failure to close must not keep the others open.
                logger.exception("closing %s of session %s failed", type(state).__name__, session_id)
        return True

    async def drop_idle(self) -> int:
        """Drop what has not been used for `idle_s`, and say how many rollouts that were."""
        oldest = time.monotonic() - self.idle_s
        idle = [session_id for session_id, session in self._sessions.items() if session.used_at < oldest]
        for session_id in idle:
            await self.drop(session_id)
        if idle:
            logger.warning("dropped %d sessions idle for more than %g s", len(idle), self.idle_s)
        return len(idle)

    async def drop_all(self) -> None:
        """Drop everything, at shutdown."""
        for session_id in list(self._sessions):
            await self.drop(session_id)

    async def reap(self) -> None:
        """Drop idle sessions for as long as the server runs."""
        while True:
            await asyncio.sleep(min(60.0, max(self.idle_s / 4, 0.01)))
            await self.drop_idle()
