"""Stands in front of a server's app: who may call and for how long, for which rollout, in which session, and what is
told of failures. One layer, since every call passes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import lru_cache
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.context.current import Wait, Work, begin_work, current_work, end_work
from nemo_gym.context.rollout_id import strip_rollout_prefix
from nemo_gym.schemas.rollout import ROLLOUT_HEADER, ROLLOUT_ID_PATTERN
from nemo_gym.web.admission import Admission
from nemo_gym.web.call import SET_COOKIE_SCOPE_KEY, Call
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY, Failures
from nemo_gym.web.session_cookies import LIFE_KEY, Sessions

PARTS = ("gate", "faults", "knows_rollouts", "sessions")
"""From the outermost to the innermost."""
THIS_MACHINE = ("127.0.0.1", 0)
_ROLLOUT = ROLLOUT_HEADER.encode()


class CallMiddleware:
    """What it has no part for goes through as it is.

    An author's middlewares may stand between one with the outer parts and one with the inner ones.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        gate: Admission | None = None,
        faults: Failures | None = None,
        knows_rollouts: bool = False,
        sessions: Sessions | None = None,
    ) -> None:
        """`knows_rollouts` lets a handler's work count for the rollout that the caller names."""
        self.app = app
        self.gate = gate
        self.faults = faults
        self.knows_rollouts = knows_rollouts
        self.sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope.get("client") is None:
            # A unix socket's caller has no address, and authors read `request.client.host`.
            scope["client"] = THIS_MACHINE
        call = Call(scope, receive, send)
        gate = self.gate
        if gate is not None:
            if gate.is_open_to(scope):
                gate = None
            elif not await gate.lets_in(call):
                return
        waits: list[Wait] = []
        token = begin_work(self._work(call, gate, waits))
        try:
            try:
                await self._pass_on(call, receive if gate is None else call.receive)
            except Exception as error:
                if self.faults is None or call.has_begun_answer:
                    raise
                await call.answer_error(self.faults.failure(error, scope))
        except asyncio.CancelledError:
            # Where it is the call's own it is to be taken back: it was not the server's end that cancelled this.
            if gate is None or not call.take_back():
                raise
            await gate.tell_end(call, waits)
        finally:
            end_work(token)
            if gate is not None:
                call.end()
                gate.leave(call)

    def _work(self, call: Call, gate: Admission | None, waits: list[Wait]) -> Work:
        """What the app works for."""
        known = current_work()
        rollout_id = known.rollout_id
        if self.knows_rollouts:
            rollout_id = call.scope[ROLLOUT_ID_SCOPE_KEY] = _rollout_of(call)
        if gate is None:
            return Work(rollout_id, known.ends_at, known.waits, known.on_reply)
        ends_at = call.ends_at()
        gate.watch(call, ends_at)
        if ends_at is None or (known.ends_at is not None and known.ends_at < ends_at):
            ends_at = known.ends_at
        return Work(rollout_id, ends_at, waits, known.on_reply)

    def _pass_on(self, call: Call, receive: Receive) -> Awaitable[None]:
        """To the app, or to the process that has the session."""
        sessions, scope = self.sessions, call.scope
        if sessions is not None:
            cookies = call.cookies
            known = None if cookies is None else sessions.read(cookies)
            if sessions.siblings is not None and known is not None:
                holder = sessions.siblings.socket_of(known.values.get(LIFE_KEY))
                if holder is not None:
                    return sessions.siblings.pass_on(holder, scope, receive, call.send)
            call.session = sessions.open(known, scope)
            scope[SET_COOKIE_SCOPE_KEY] = call.session.set_cookie
        return self.app(scope, receive, call.send)


class RolloutContextMiddleware(CallMiddleware):
    """Lets a handler's work count for the rollout that the caller names, by header or by `/ng-rollout/<id>/…`."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, knows_rollouts=True)


def is_ours(middleware: Middleware) -> bool:
    """Whether this is one of ours, and no class that is built on it."""
    kind: object = middleware.cls
    return kind is CallMiddleware


def merged(middlewares: Iterable[Middleware]) -> list[Middleware]:
    """The same middlewares, with one front in place of several that follow each other."""
    found: list[Middleware] = []
    for each in middlewares:
        if found and is_ours(found[-1]) and is_ours(each) and _come_before(found[-1].kwargs, each.kwargs):
            parts: dict[str, Any] = {**found.pop().kwargs, **each.kwargs}
            each = Middleware(CallMiddleware, **parts)  # noqa: PLW2901 - what it has become
        found.append(each)
    return found


def _come_before(outer: Iterable[str], inner: Iterable[str]) -> bool:
    return max(map(PARTS.index, outer)) < min(map(PARTS.index, inner))


def _rollout_of(call: Call) -> str | None:
    # Where another front has taken the prefix away, it has left the id.
    told = call.headers.get(_ROLLOUT)
    named = None if told is None else _rollout_id_of(told)
    return strip_rollout_prefix(call.scope) or named or call.scope.get(ROLLOUT_ID_SCOPE_KEY)


@lru_cache(maxsize=1024)
def _rollout_id_of(told: bytes) -> str | None:
    text = told.decode("latin-1")
    return text if ROLLOUT_ID_PATTERN.fullmatch(text) else None
