"""Middleware that removes a rollout's policy (endpoint, key, model) from the request before any handler sees it."""

from __future__ import annotations

import json
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.context.current import begin_work, current_work, end_work
from nemo_gym.context.policy import Policy
from nemo_gym.errors import InvalidTask
from nemo_gym.schemas.rollout import POLICY_HEADER
from nemo_gym.schemas.row import POLICY_KEYS
from nemo_gym.web.fast_routes import Received

RUN_PATH = "/run"
_HEADER = POLICY_HEADER.encode()
_WRITTEN_KEYS = tuple(f'"{key}"'.encode() for key in POLICY_KEYS)


class RolloutPolicies:
    """Middleware that makes a server's handlers use the policy that the caller names, in the row or in a header."""

    def __init__(
        self, app: ASGIApp, *, servers: frozenset[str] = frozenset(), reads_rows: bool = False, objection: str = ""
    ) -> None:
        """`servers` are the names of the servers that receive the policy with the rollout's calls.

        With `reads_rows`, a row for `/run` may name the policy. If `objection` is not empty, requests with a policy
        are rejected with this message.
        """
        self.app = app
        self._servers = servers
        self._reads_rows = reads_rows
        self._objection = objection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        policy = _taken_from_headers(scope)
        if self._reads_rows and scope["path"] == RUN_PATH and scope["method"] == "POST":
            received = Received(receive)
            if await received.is_complete() and any(key in received.body() for key in _WRITTEN_KEYS):
                own, body = _taken_from_row(received.body())
                policy = own or policy
                scope["headers"] = _with_length(scope, len(body))
                received.replace(body)
            receive = received.again()
        if policy is None:
            await self.app(scope, receive, send)
            return
        if self._objection:
            raise InvalidTask(self._objection)
        before, policy = current_work(), replace(policy, servers=self._servers)
        token = begin_work(before._replace(policy=policy))
        try:
            await self.app(scope, receive, send)
        finally:
            end_work(token)


def _taken_from_headers(scope: Scope) -> Policy | None:
    for name, value in scope["headers"]:
        if name == _HEADER:
            scope["headers"] = [each for each in scope["headers"] if each[0] != _HEADER]
            return _policy_in(_parsed(value, f"the header {POLICY_HEADER}"))
    return None


def _taken_from_row(body: bytes) -> tuple[Policy | None, bytes]:
    """Return the policy that a row names, and the row without it."""
    # Use `json` instead of orjson, because orjson rounds integers of more than 64 bits.
    row = _parsed(body, "the row")
    if not isinstance(row, dict):
        return None, body
    policy = _policy_in(row)
    return policy, json.dumps({key: value for key, value in row.items() if key not in POLICY_KEYS}).encode()


def _parsed(text: bytes, what: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidTask(f"{what} is not valid JSON: {error}") from None


def _policy_in(fields: object) -> Policy | None:
    try:
        return Policy.of_fields(fields) if isinstance(fields, dict) else None
    except ValueError as error:
        raise InvalidTask(f"the row's {error}") from None


def _with_length(scope: Scope, length: int) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return [*others, (b"content-length", b"%d" % length)]
