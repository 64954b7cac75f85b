"""The request line and headers of one call."""

from __future__ import annotations

import time
from functools import lru_cache

from starlette.types import Scope

from nemo_gym.context.deadline import read_time_left
from nemo_gym.context.rollout_id import ROLLOUT_PREFIX, strip_rollout_prefix
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import INPUT_AT_HEADER, ROLLOUT_HEADER, TIME_LEFT_HEADER
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY

NEVER_JSON = (b"multipart/", b"application/octet-stream", b"image/", b"audio/", b"video/")
"""Content types of bodies that are never JSON. Their depth is not checked, because they may contain any bytes."""
READS = ("GET", "HEAD")
LIVENESS_PATHS = ("/", "/livez", "/readyz", "/healthz", "/health")
_ROLLOUT = ROLLOUT_HEADER.encode()
_TIME_LEFT = TIME_LEFT_HEADER.encode()
_INPUT_AT = INPUT_AT_HEADER.encode()


class Call:
    __slots__ = ("began_at", "headers", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.began_at = time.monotonic()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        """The last value of each header."""

    @property
    def path(self) -> str:
        """The path, without the prefix that names a rollout."""
        return str(self.scope["path"])

    @property
    def cookies(self) -> bytes | None:
        """The `Cookie` header, or None. Several `Cookie` headers are joined."""
        given = self.headers.get(b"cookie")
        if given is None or len(self.headers) == len(self.scope["headers"]):
            return given
        return b"; ".join(value for name, value in self.scope["headers"] if name == b"cookie")

    @property
    def body_bytes(self) -> int:
        """The length of the body according to `Content-Length`; 0 if that header is absent or invalid."""
        announced = self.headers.get(b"content-length", b"")
        return int(announced) if announced.isdigit() else 0

    @property
    def may_be_json(self) -> bool:
        """Whether this server might parse the body as JSON."""
        # Model servers pass a long conversation on without parsing it, so its depth need not be checked.
        is_passed_on = _INPUT_AT in self.headers and self.path.endswith(RESPONSES_PATH)
        return not is_passed_on and not self.headers.get(b"content-type", b"").lower().startswith(NEVER_JSON)

    def ends_at(self) -> float | None:
        """Return the rollout's deadline on the monotonic clock, or None if the caller sends none."""
        announced = self.headers.get(_TIME_LEFT)
        left_s = None if announced is None else read_time_left(announced)
        return None if left_s is None else self.began_at + left_s

    def take_rollout_id(self) -> str | None:
        """Remove the rollout prefix from the path. Return the rollout id from the prefix or else from a header."""
        announced = self.headers.get(_ROLLOUT)
        named = None if announced is None else _rollout_id_of(announced)
        # Fall back to the scope, in which an outer layer leaves the id when it removes the prefix.
        scope = self.scope
        found = strip_rollout_prefix(scope) if scope["path"].startswith(ROLLOUT_PREFIX) else None
        found = scope[ROLLOUT_ID_SCOPE_KEY] = found or named or scope.get(ROLLOUT_ID_SCOPE_KEY)
        return found


def is_health_check(scope: Scope) -> bool:
    return scope["method"] in READS and scope["path"] in LIVENESS_PATHS


@lru_cache(maxsize=1024)
def _rollout_id_of(announced: bytes) -> str | None:
    text = announced.decode("latin-1")
    return text if ROLLOUT_ID_PATTERN.fullmatch(text) else None
