"""From a cookie to the session of a request, and back: signed, and checked once."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections.abc import Container
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import itsdangerous
import orjson
from itsdangerous.encoding import base64_encode, int_to_bytes, want_bytes
from starlette.requests import cookie_parser
from starlette.types import Scope

from nemo_gym.errors import EnvironmentFailed, ServerLost

if TYPE_CHECKING:
    from nemo_gym.web.session_routing import SessionRouting

SESSION_ID_KEY = "session_id"
LIFE_KEY = "_ng_life"
"""Where a session holds the mark of the life of the process that began it; a session without one is of any life."""
NEED_NO_STATE = frozenset({"/aggregate_metrics", "/reverify_mode", "/mcp"})
"""Paths that have nothing to do with one rollout's state; `/mcp` looks at its own token instead."""
SESSION_MAX_AGE_S = 14 * 24 * 60 * 60
REMEMBERED_COOKIES = 16_384
TEXTS = frozenset({str})


class SignedSession(NamedTuple):
    """A session as its cookie holds it; thousands are remembered."""

    signed: bytes
    """The cookie's value as it came."""
    signed_at: float
    """Seconds since the epoch."""
    values: dict[str, Any]
    """As they were signed; nobody may change them."""

    def copy(self) -> dict[str, Any]:
        """The values for one request, which may change them."""
        return dict(self.values) if _are_texts(self.values) else deepcopy(self.values)


class _Signer(itsdangerous.TimestampSigner):
    """Signs as its base class does, but derives its key once, and tells the time once a second."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret)
        self._keyed = hmac.new(super().derive_key(), digestmod="sha1")
        self._told_at = 0
        self._told = b""

    def sign(self, value: str | bytes) -> bytes:
        """The value, the time and the signature of both."""
        now = int(time.time())
        if now != self._told_at:
            self._told_at, self._told = now, base64_encode(int_to_bytes(now))
        stamped = b".".join((want_bytes(value), self._told))
        signing = self._keyed.copy()
        signing.update(stamped)
        return stamped + b"." + base64_encode(signing.digest())


class _Remembered(dict[bytes, SignedSession]):
    """Sessions by their cookies, so that none is checked again with each call of its rollout; the oldest go first."""

    def keep(self, session: SignedSession) -> None:
        if len(self) >= REMEMBERED_COOKIES:
            del self[next(iter(self))]
        self[session.signed] = session


class Sessions:
    """The sessions of one server's callers.

    The cookie's form is that of Starlette's `SessionMiddleware`. It comes back on every response because agents keep
    only the cookies of the last one.

    `life` is the mark of this process's life, None where it does not matter in which life a session began. A caller
    whose session is of an earlier life gets a fresh one at the paths of `beginnings`, or anywhere if that is None;
    elsewhere its call needs what is gone, and `ServerLost` is raised.
    """

    def __init__(
        self,
        *,
        cookie: str,
        secret: str,
        life: str | None = None,
        beginnings: Container[str] | None = None,
        siblings: SessionRouting | None = None,
    ) -> None:
        self.cookie = cookie
        self.life = life
        self.beginnings = beginnings
        self.siblings = siblings
        self._signer = _Signer(secret)
        self._prefix = cookie.encode("latin-1") + b"="
        self._remembered = _Remembered()

    def read(self, cookies: bytes) -> SignedSession | None:
        """The session that a `Cookie` header shows; None where it shows none, or one that is too old."""
        if self._prefix not in cookies:
            return None
        if cookies.startswith(self._prefix) and b";" not in cookies and b'"' not in cookies:
            signed = cookies[len(self._prefix) :]
        else:
            # Unlike the standard library's parser it reads on after another server's odd cookie.
            signed = cookie_parser(cookies.decode("latin-1")).get(self.cookie, "").encode("latin-1")
        known = self._remembered.get(signed) or self._unsigned(signed)
        return None if known is None or known.signed_at < time.time() - SESSION_MAX_AGE_S else known

    def open(self, known: SignedSession | None, scope: Scope) -> OpenSession:
        """The session for one request, which finds it in its scope."""
        if known is not None and is_of_earlier_life(known.values.get(LIFE_KEY), self.life):
            known = self._outlived(known, scope)
        values: dict[str, Any] = {} if known is None else known.copy()
        if SESSION_ID_KEY not in values:
            values[SESSION_ID_KEY] = _new_id()
            if self.life is not None:
                values[LIFE_KEY] = self.life
        scope["session"] = values
        return OpenSession(self, known, values)

    def header_of(self, session: SignedSession) -> bytes:
        """The value of a `Set-Cookie` header."""
        return b"%b%b; path=/; Max-Age=%d; httponly; samesite=lax" % (self._prefix, session.signed, SESSION_MAX_AGE_S)

    def written(self, values: dict[str, Any]) -> SignedSession:
        """The session with these values, signed."""
        data = _packed(values)
        # What is nested may be changed afterwards; texts may not.
        kept = dict(values) if _are_texts(values) else json.loads(base64.b64decode(data))
        return self._remember(SignedSession(self._signer.sign(data), time.time(), kept))

    def _unsigned(self, signed: bytes) -> SignedSession | None:
        try:
            data, signed_at = self._signer.unsign(signed, return_timestamp=True)
            values = json.loads(base64.b64decode(data))
        except (itsdangerous.BadSignature, ValueError):
            return None
        if not isinstance(values, dict):
            return None
        return self._remember(SignedSession(signed, signed_at.timestamp(), values))

    def _remember(self, session: SignedSession) -> SignedSession:
        self._remembered.keep(session)
        return session

    def _outlived(self, known: SignedSession, scope: Scope) -> SignedSession | None:
        """What becomes of a session that an earlier life began: none of it, all of it, or `ServerLost`."""
        if self.beginnings is None or scope["path"] in self.beginnings:
            return None
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or scope["path"] in NEED_NO_STATE:
            # It stays what it is: with a fresh one its caller would go on, and be graded as if it had done nothing.
            return known
        raise lost_with_earlier_life()


class OpenSession:
    """The session of a request under way."""

    __slots__ = ("_known", "_sessions", "_values")

    def __init__(self, sessions: Sessions, known: SignedSession | None, values: dict[str, Any]) -> None:
        self._sessions = sessions
        self._known = known
        self._values = values

    def set_cookie(self) -> bytes:
        """The value of a `Set-Cookie` header for the session as it is now."""
        known = self._known
        if known is None or self._values != known.values:
            # An unchanged session keeps its signature: signing again would cost and say nothing new.
            known = self._known = self._sessions.written(self._values)
        return self._sessions.header_of(known)


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


def _packed(values: dict[str, Any]) -> bytes:
    try:
        text = orjson.dumps(values) if _are_texts(values) else b""
    except orjson.JSONEncodeError:
        text = b""
    # What else there may be is written as Starlette does, or refused as it does.
    return base64.b64encode(text or json.dumps(values).encode())


def _are_texts(values: dict[str, Any]) -> bool:
    return TEXTS.issuperset(map(type, values.values()))


def _new_id() -> str:
    # A random UUID of version 4, in a third of the time that the library takes; a rollout has three sessions.
    digits = secrets.token_hex(16)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
