"""From a cookie to this rollout's state on the server."""

from __future__ import annotations

import asyncio
import base64
import hmac
import inspect
import json
import logging
import secrets
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import itsdangerous
from itsdangerous.encoding import base64_encode, int_to_bytes, want_bytes
from pydantic import BaseModel, ConfigDict
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import EnvironmentFailed, RolloutError, ServerLost

if TYPE_CHECKING:
    from nemo_gym.servers.siblings import Siblings

logger = logging.getLogger(__name__)

SESSION_ID_KEY = "session_id"
LIFE_KEY = "_ng_life"
"""Where a session holds the mark of the life of the process that began it; a session without one is of any life."""
NEED_NO_STATE = frozenset({"/aggregate_metrics", "/reverify_mode", "/mcp"})
"""Paths that have nothing to do with one rollout's state; `/mcp` looks at its own token instead."""
SESSION_MAX_AGE_S = 14 * 24 * 60 * 60
REMEMBERED_COOKIES = 16_384
SET_COOKIE_SCOPE_KEY = "nemo_gym.set_cookie"
"""Where the scope holds a function that gives the `Set-Cookie` value, for answers made outside of the middleware."""


class _SignedSession(NamedTuple):
    signed: str
    """The cookie's value as it came."""
    signed_at: float
    """Seconds since the epoch."""
    data: bytes
    """What was signed."""
    session: dict[str, Any]
    """As it was signed; nobody may change it."""

    def copy(self) -> dict[str, Any]:
        """The session for one request, which may change it."""
        if all(type(value) is str for value in self.session.values()):
            return dict(self.session)
        changeable: dict[str, Any] = json.loads(base64.b64decode(self.data))
        return changeable


class _Signer(itsdangerous.TimestampSigner):
    """Signs as its base class does, but derives its key once, not with every signature."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret)
        self._derived = super().derive_key()

    def sign(self, value: str | bytes) -> bytes:
        """The value, the time and the signature of both."""
        stamped = b".".join((want_bytes(value), base64_encode(int_to_bytes(self.get_timestamp()))))
        return stamped + b"." + base64_encode(hmac.digest(self._derived, stamped, "sha1"))


class _Remembered(dict[str, _SignedSession]):
    """Sessions by their cookies, so that none is checked again with each call of its rollout; the oldest go first."""

    def keep(self, session: _SignedSession) -> None:
        if len(self) >= REMEMBERED_COOKIES:
            del self[next(iter(self))]
        self[session.signed] = session


class SessionMiddleware:
    """Gives each request `request.session`, signed into a cookie that every response carries again.

    The cookie's form is that of Starlette's middleware of this name. It comes back on every response because
    agents keep only the cookies of the last one.

    `life` is the mark of this process's life, None where it does not matter in which life a session began. A caller
    whose session is of an earlier life gets a fresh one at the paths of `beginnings`, or anywhere if that is None;
    elsewhere its call needs what is gone, and `ServerLost` is raised.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        cookie: str,
        secret: str,
        life: str | None = None,
        beginnings: Container[str] | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        self.app = app
        self.cookie = cookie
        self.signer = _Signer(secret)
        self._prefix = cookie.encode("latin-1") + b"="
        self._remembered = _Remembered()
        self.life = life
        self.beginnings = beginnings
        self.siblings = siblings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        known = self._read(scope)
        if known is not None and self.siblings is not None:
            holder = self.siblings.socket_of(known.session.get(LIFE_KEY))
            if holder is not None:
                await self.siblings.pass_on(holder, scope, receive, send)
                return
        if known is not None and is_of_earlier_life(known.session.get(LIFE_KEY), self.life):
            known = self._outlived(known, scope)
        session: dict[str, Any] = known.copy() if known else {}
        if SESSION_ID_KEY not in session:
            session[SESSION_ID_KEY] = secrets.token_hex(16)
            if self.life is not None:
                session[LIFE_KEY] = self.life
        scope["session"] = session

        def set_cookie() -> str:
            value = self._written(session, known)
            return f"{self.cookie}={value}; path=/; Max-Age={SESSION_MAX_AGE_S}; httponly; samesite=lax"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", set_cookie().encode("latin-1"))]
            await send(message)

        scope[SET_COOKIE_SCOPE_KEY] = set_cookie
        await self.app(scope, receive, send_with_cookie)

    def _read(self, scope: Scope) -> _SignedSession | None:
        for name, value in scope["headers"]:
            if name == b"cookie" and self._prefix in value:
                if value.startswith(self._prefix) and b";" not in value and b'"' not in value:
                    signed: str | None = value[len(self._prefix) :].decode("latin-1")
                else:
                    # Unlike the standard library's parser it reads on after another server's odd cookie.
                    signed = cookie_parser(value.decode("latin-1")).get(self.cookie)
                known = (self._remembered.get(signed) or self._unsigned(signed)) if signed else None
                return None if known is None or known.signed_at < time.time() - SESSION_MAX_AGE_S else known
        return None

    def _unsigned(self, signed: str) -> _SignedSession | None:
        try:
            data, signed_at = self.signer.unsign(signed.encode("latin-1"), return_timestamp=True)
            session = json.loads(base64.b64decode(data))
        except (itsdangerous.BadSignature, ValueError):
            return None
        if not isinstance(session, dict):
            return None
        known = _SignedSession(signed, signed_at.timestamp(), data, session)
        self._remembered.keep(known)
        return known

    def _outlived(self, known: _SignedSession, scope: Scope) -> _SignedSession | None:
        """What becomes of a session that an earlier life began: none of it, all of it, or `ServerLost`."""
        if self.beginnings is None or scope["path"] in self.beginnings:
            return None
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or scope["path"] in NEED_NO_STATE:
            # It stays what it is: with a fresh one its caller would go on, and be graded as if it had done nothing.
            return known
        raise lost_with_earlier_life()

    def _written(self, session: dict[str, Any], known: _SignedSession | None) -> str:
        if known is not None and session == known.session:
            # An unchanged session keeps its signature: signing again would cost and say nothing new.
            return known.signed
        data = _packed(session)
        signed = self.signer.sign(data).decode("latin-1")
        self._remembered.keep(_SignedSession(signed, time.time(), data, dict(session)))
        return signed


def is_of_earlier_life(mark: Any, life: str | None) -> bool:
    """Whether what bears this mark was begun by an earlier life of the process whose own mark is `life`."""
    return mark is not None and life is not None and mark != life


def lost_with_earlier_life(server: str | None = None) -> ServerLost:
    """The failure of a rollout whose state went with the process that held it."""
    return ServerLost(
        "the server was started again after this rollout had begun, and what it held of the rollout is gone",
        server=server,
        tier=EnvironmentFailed.default_tier,
    )


def session_cookie(name: str, secret: str, session_id: str) -> str:
    """The `Cookie` header with which a request belongs to a session, as if its caller had been given it before."""
    signed = itsdangerous.TimestampSigner(secret).sign(_packed({SESSION_ID_KEY: session_id}))
    return f"{name}={signed.decode('latin-1')}"


def _packed(session: dict[str, Any]) -> bytes:
    return base64.b64encode(json.dumps(session).encode())


class SessionState(BaseModel):
    """What a server remembers of one rollout. Subclass it and give every field a default.

    A tool, `seed_session` or `verify` that has a parameter of the subclass's type receives this rollout's
    instance: made on first use, dropped after `verify`, after `/close_session` or after lying idle.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def close(self) -> None:
        """Free what the state holds; awaited when it is dropped. A plain `def` does as well."""


StateT = TypeVar("StateT", bound=SessionState)


class _Session:
    __slots__ = ("calls", "states", "used_at")

    def __init__(self) -> None:
        self.states: dict[type[SessionState], SessionState] = {}
        self.used_at = time.monotonic()
        self.calls = 0
        """How many calls are at work on the states just now."""


class SessionStore:
    """The states of all rollouts that are under way on one server."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._expired: set[str] = set()
        self._failures: dict[str, RolloutError] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str, kind: type[StateT]) -> StateT:
        """This rollout's instance of `kind`, made where there is none yet.

        Raises `EnvironmentFailed` where the rollout had one that lay idle for too long: a fresh one would be graded
        as if the model had done nothing.
        """
        if session_id in self._expired:
            raise EnvironmentFailed(
                f"the rollout's {kind.__name__} was dropped after lying idle for more than {self.idle_s:g} s; "
                "raise session_idle_s in the server's config"
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

    @contextmanager
    def in_use(self, session_id: str) -> Iterator[None]:
        """Keep a rollout's states from counting as idle while a call works on them."""
        session = self._sessions[session_id]
        session.calls += 1
        try:
            yield
        finally:
            session.calls -= 1
            session.used_at = time.monotonic()

    def fail(self, session_id: str, failure: RolloutError) -> None:
        """Remember until the rollout is dropped how it failed; the first failure is the one that counts."""
        self._failures.setdefault(session_id, failure)

    def failure_of(self, session_id: str) -> RolloutError | None:
        """How a rollout failed, for whoever is to grade it; None where it did not."""
        return self._failures.get(session_id)

    async def drop(self, session_id: str) -> bool:
        """Forget a rollout and close its states; False where nothing was kept of it."""
        self._expired.discard(session_id)
        self._failures.pop(session_id, None)
        return await self._close(session_id)

    async def drop_idle(self) -> int:
        """Drop what has not been used for `idle_s`, and say how many rollouts that were."""
        dropped = 0
        for session_id, session in list(self._sessions.items()):
            if session.calls or session.used_at >= time.monotonic() - self.idle_s:
                continue
            if session_id in self._sessions:
                self._expired.add(session_id)
            dropped += await self._close(session_id)
        if dropped:
            logger.warning("dropped %d sessions idle for more than %g s", dropped, self.idle_s)
        return dropped

    async def drop_all(self) -> None:
        """Drop everything, at shutdown."""
        for session_id in list(self._sessions):
            await self.drop(session_id)

    async def _close(self, session_id: str) -> bool:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        for state in session.states.values():
            try:
                closing: Any = state.close()
                if inspect.isawaitable(closing):
                    await closing
            except Exception:
                # One state's failure to close must not keep the others open.
                logger.exception("closing %s of session %s failed", type(state).__name__, session_id)
        return True

    async def reap(self) -> None:
        """Drop idle sessions for as long as the server runs."""
        while True:
            await asyncio.sleep(min(60.0, max(self.idle_s / 4, 0.01)))
            await self.drop_idle()
