"""Sessions in signed cookies. Verified cookies are cached."""

from __future__ import annotations

import base64
import hmac
import json
import os
import time
from collections.abc import Container, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

import itsdangerous
import orjson
from itsdangerous.encoding import base64_encode, int_to_bytes, want_bytes
from starlette.requests import cookie_parser
from starlette.types import Scope

from nemo_gym.errors import EnvironmentFailed, ServerLost
from nemo_gym.jsonl import JsonObject

if TYPE_CHECKING:
    from nemo_gym.web.session_routing import SessionRouting

SESSION_ID_KEY = "session_id"
_LIFE = "_ng_life"
NEED_NO_STATE = frozenset({"/aggregate_metrics", "/reverify_mode", "/mcp"})
"""Paths that do not use a rollout's state. `/mcp` checks its own token instead."""
SESSION_MAX_AGE_S = 14 * 24 * 60 * 60
REMEMBERED_COOKIES = 16_384
TEXTS = frozenset({str})


class SignedSession(NamedTuple):
    """A session as stored in its cookie. It is a tuple to save memory, because thousands are cached."""

    signed: bytes
    """The value of the cookie: the encoded session, the time and the signature."""
    signed_at: float
    """The time of the signature, in seconds since the epoch."""
    values: JsonObject
    """The signed values. Do not change them."""

    @property
    def life(self) -> object:
        """The process start in which the session began; None if the session survives restarts."""
        return self.values.get(_LIFE)

    def copy(self) -> JsonObject:
        """Return a copy of the values. The handler of a request may change the copy."""
        return dict(self.values) if _are_texts(self.values) else deepcopy(self.values)


class _Signer(itsdangerous.TimestampSigner):
    """A faster `TimestampSigner`, which derives its key once and encodes the time once per second."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret)
        self._keyed = hmac.new(super().derive_key(), digestmod="sha1")
        self._encoded_at = 0
        self._encoded = b""

    def sign(self, value: str | bytes) -> bytes:
        """Return the value, the time and the signature of both, joined by dots."""
        now = int(time.time())
        if now != self._encoded_at:
            self._encoded_at, self._encoded = now, base64_encode(int_to_bytes(now))
        stamped = b".".join((want_bytes(value), self._encoded))
        signing = self._keyed.copy()
        signing.update(stamped)
        return stamped + b"." + base64_encode(signing.digest())


class Sessions:
    """The sessions of one server's callers.

    The cookie has the format of Starlette's `SessionMiddleware`. Every response sets it, because agents keep only the
    cookies of the last response.

    `life` identifies this start of the process; None if a restart loses no state. `beginnings` are the paths that
    begin a session; None means all paths. At these paths, a session from before a restart is replaced. At other paths,
    calls that need the session's lost state raise `ServerLost`.
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
        self._remembered: dict[bytes, SignedSession] = {}
        """Sessions by cookie value, so that each cookie is verified only once."""

    def read(self, cookies: bytes) -> SignedSession | None:
        """Return the session of a `Cookie` header, or None if the session is missing, invalid or expired."""
        if self._prefix not in cookies:
            return None
        if cookies.startswith(self._prefix) and b";" not in cookies and b'"' not in cookies:
            signed = cookies[len(self._prefix) :]
        else:
            # Use Starlette's parser, because the standard library's parser stops at another server's malformed cookie.
            signed = cookie_parser(cookies.decode("latin-1")).get(self.cookie, "").encode("latin-1")
        known = self._remembered.get(signed) or self._unsigned(signed)
        return None if known is None or known.signed_at < time.time() - SESSION_MAX_AGE_S else known

    def open(self, known: SignedSession | None, scope: Scope) -> OpenSession:
        """Open the session of a request and put its values into the scope."""
        if known is not None and self.life is not None and is_of_earlier_life(known.life, self.life):
            known = self._outlived(known, scope)
        values: JsonObject = {} if known is None else known.copy()
        if SESSION_ID_KEY not in values:
            values[SESSION_ID_KEY] = _new_id()
            if self.life is not None:
                values[_LIFE] = self.life
        scope["session"] = values
        return OpenSession(self, known, values)

    def header_of(self, session: SignedSession) -> bytes:
        """Return the value of the `Set-Cookie` header for a session."""
        return b"%b%b; path=/; Max-Age=%d; httponly; samesite=lax" % (self._prefix, session.signed, SESSION_MAX_AGE_S)

    def written(self, values: Mapping[str, object]) -> SignedSession:
        data = _packed(values)
        # Copy nested values, because the handler may change them later.
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
        if len(self._remembered) >= REMEMBERED_COOKIES:
            # Remove the oldest entry, which is the first one.
            del self._remembered[next(iter(self._remembered))]
        self._remembered[session.signed] = session
        return session

    def _outlived(self, known: SignedSession, scope: Scope) -> SignedSession | None:
        """Decide what to do with a session from before a restart.

        Return None to replace the session, or the session to keep it. Raise `ServerLost` if the call needs its state.
        """
        if self.beginnings is None or scope["path"] in self.beginnings:
            return None
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or scope["path"] in NEED_NO_STATE:
            # Keep the session. With a new one, the rollout would be graded as if the model had done nothing.
            return known
        raise lost_with_earlier_life()


class OpenSession:
    __slots__ = ("_known", "_sessions", "_values")

    def __init__(self, sessions: Sessions, known: SignedSession | None, values: JsonObject) -> None:
        self._sessions = sessions
        self._known = known
        self._values = values

    def set_cookie(self) -> bytes:
        """Return the value of a `Set-Cookie` header for the session's current values."""
        known = self._known
        if known is None or self._values != known.values:
            # Only a changed session is signed again, because signing is expensive.
            known = self._known = self._sessions.written(self._values)
        return self._sessions.header_of(known)


def is_of_earlier_life(mark: object, life: str | None) -> bool:
    """Return whether a session with this mark began before the process start that `life` identifies."""
    return mark is not None and life is not None and mark != life


def lost_with_earlier_life(server: str | None = None) -> ServerLost:
    """Return the failure of a rollout whose state was lost in a restart."""
    return ServerLost(
        "the server was restarted during this rollout, and the rollout's state is lost",
        server=server,
        tier=EnvironmentFailed.default_tier,
    )


def session_cookie(name: str, secret: str, session_id: str) -> str:
    """Return a `Cookie` header that names a session by its id, signed so that the server accepts it."""
    signed = itsdangerous.TimestampSigner(secret).sign(_packed({SESSION_ID_KEY: session_id}))
    return f"{name}={signed.decode('latin-1')}"


def _packed(values: Mapping[str, object]) -> bytes:
    try:
        text = orjson.dumps(values) if _are_texts(values) else b""
    except orjson.JSONEncodeError:
        text = b""
    # Use `json` for values other than strings, so that the same values are accepted as in Starlette.
    return base64.b64encode(text or json.dumps(values).encode())


def _are_texts(values: Mapping[str, object]) -> bool:
    return TEXTS.issuperset(map(type, values.values()))


def _new_id() -> str:
    # Create a random UUID of version 4 without `uuid`, which takes four times as long. A rollout needs four ids.
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
