"""The response to one call, with the session's cookie and with secrets masked."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

import orjson
from starlette.types import Message, Scope, Send

from nemo_gym.calls.problems import MEDIA_TYPE, Problem
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.context.spent import Spent
from nemo_gym.errors import RolloutError
from nemo_gym.jsonl import dump_json
from nemo_gym.web.failures import CONVERSATION_SCOPE_KEY

if TYPE_CHECKING:
    from nemo_gym.web.session_cookies import OpenSession

SET_COOKIE_SCOPE_KEY = "nemo_gym.set_cookie"
"""Scope key of a function that returns the `Set-Cookie` value, for middleware that does not have the session."""


class Rejection(NamedTuple):
    """The problem details of a rejected call."""

    status: int
    title: str
    detail: str

    @property
    def body(self) -> bytes:
        return orjson.dumps({"type": "about:blank", **self._asdict()})


class Answer:
    """The response to one call, either from the app or from middleware in front of it."""

    # Class-level defaults for rarely used attributes, so most calls pay nothing for them.
    status = 0
    """The HTTP status; 0 until the response has begun."""
    session: OpenSession | None = None
    """The session whose cookie is added to the response."""
    spent: Spent | None = None
    """The time and the tool calls of the handler, to be reported in the response."""
    rejection: Rejection | None = None
    """The rejection of an invalid request body. It is sent instead of a server error with which the app answers."""
    _held: list[Message] | None = None
    _is_stream = False

    def __init__(self, scope: Scope, send: Send, secrets: SecretValues | None = None) -> None:
        """`secrets` are masked in failures and in event streams; None masks nothing."""
        self._scope = scope
        self._send = send
        self._secrets = secrets

    @property
    def has_begun(self) -> bool:
        return self.status != 0

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message to the caller, adding the headers of session and time. Mask secrets in errors and streams."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.session is not None and SET_COOKIE_SCOPE_KEY in self._scope:
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", self.session.set_cookie())]
            if self.spent is not None:
                message["headers"] = [*message.get("headers", ()), *self.spent.headers()]
            if self._secrets is not None:
                self._is_stream = _is_event_stream(message)
        elif self._is_stream and self._secrets is not None and message["type"] == "http.response.body":
            # Mask every part of an event stream, because it may report failures as events.
            message = {**message, "body": self._secrets.mask_bytes(message.get("body", b""))}
        # Return the awaitable, because another coroutine for each message would take 1% of a request's time.
        if self._secrets is None or self.status < 400:
            return self._send(message)
        return self._send_masked(message, self._secrets)

    async def _send_masked(self, message: Message, secrets: SecretValues) -> None:
        # Hold a failed response until it is complete, because a secret may be split between messages.
        self._held = [*(self._held or ()), message]
        if message["type"] != "http.response.body" or message.get("more_body", False):
            return
        start, *rest = self._held
        body = b"".join(each.get("body", b"") for each in rest if each["type"] == "http.response.body")
        headers = start.get("headers", [])
        if self.rejection is not None and self.status >= 500:
            self.status = self.rejection.status
            cookies = [(name, value) for name, value in headers if name.lower() == b"set-cookie"]
            body, headers = self.rejection.body, [*cookies, (b"content-type", MEDIA_TYPE.encode())]
        masked = secrets.mask_bytes(body)
        if masked != body or len(rest) > 1:
            others = [(name, value) for name, value in headers if name.lower() != b"content-length"]
            headers = [*others, (b"content-length", b"%d" % len(masked))]
        await self._send({**start, "status": self.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": masked})

    async def write(self, status: int, media_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        named = {"content-type": media_type, **(headers or {})}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
        if self.session is None and SET_COOKIE_SCOPE_KEY in self._scope:
            raw.append((b"set-cookie", self._scope[SET_COOKIE_SCOPE_KEY]()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})

    async def reject(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> None:
        await self.write(status, MEDIA_TYPE, Rejection(status, title, detail).body, headers)

    async def fail(self, error: RolloutError, headers: dict[str, str] | None = None) -> None:
        problem = Problem.of_error(error)
        problem.conversation = self._scope.get(CONVERSATION_SCOPE_KEY) or error.conversation
        await self.write(problem.status, MEDIA_TYPE, dump_json(problem.model_dump()), headers)


def _is_event_stream(start: Message) -> bool:
    # Use a loop, because a generator expression takes twice as long, and this runs for each response.
    for name, value in start.get("headers", ()):
        if name.lower() == b"content-type":
            return bool(value.startswith(b"text/event-stream"))
    return False
