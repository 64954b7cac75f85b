"""The layer in front of a server's app: admission, deadline, rollout, session and failures of every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.context.current import Wait, Work, begin_work, current_work, end_work
from nemo_gym.context.spent import Spent
from nemo_gym.web.admission import Admission
from nemo_gym.web.answer import SET_COOKIE_SCOPE_KEY, Answer
from nemo_gym.web.call import Call
from nemo_gym.web.failures import Failures
from nemo_gym.web.session_cookies import Sessions

THIS_MACHINE = ("127.0.0.1", 0)


class CallMiddleware:
    """Middleware that applies the given parts to each call, from admission (outermost) to sessions.

    One class has all parts, because a layer per part would slow down every call. The server author's own middlewares
    run between an outer instance (admission, failures) and an inner one (rollouts, sessions).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        admission: Admission | None = None,
        failures: Failures | None = None,
        knows_rollouts: bool = False,
        sessions: Sessions | None = None,
    ) -> None:
        """With `knows_rollouts`, handlers run in the context of the rollout that the caller names."""
        self.app = app
        self.admission = admission
        self.failures = failures
        self.knows_rollouts = knows_rollouts
        self.sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call, admission = Call(scope), self.admission
        if admission is not None and (objection := admission.objection(call)) is not None:
            await Answer(scope, send).reject(403, "foreign page", objection)
            return
        if scope.get("client") is None:
            # Set an address, because authors read `request.client.host`, which is missing on a unix socket.
            scope["client"] = THIS_MACHINE
        if admission is None or admission.is_open_to(scope):
            known = current_work()
            rollout_id = call.take_rollout_id() if self.knows_rollouts else known.rollout_id
            work = Work(rollout_id, known.ends_at, known.waits, known.on_reply, known.policy, known.spent)
            await self._work_on(work, call, Answer(scope, send), receive)
            return
        answer = Answer(scope, send, admission.secrets)
        # Keep these blocks inline, because each coroutine between server and handler takes 1% of a request's time.
        try:
            if not await admission.lets_in(call, answer):
                return
            try:
                waits: list[Wait] = []
                ends_at, known = call.ends_at(), current_work()
                with admission.watchdog(call, answer, receive, ends_at) as watchdog:
                    if ends_at is None or (known.ends_at is not None and known.ends_at < ends_at):
                        ends_at = known.ends_at
                    rollout_id = call.take_rollout_id() if self.knows_rollouts else known.rollout_id
                    if scope["path"].endswith(admission.timed_paths):
                        answer.spent = Spent()
                    work = Work(rollout_id, ends_at, waits, known.on_reply, known.policy, answer.spent)
                    await self._work_on(work, call, answer, watchdog.receive)
                if watchdog.has_fired:
                    await admission.report_end(call, answer, waits, caller_has_gone=watchdog.caller_has_gone)
            finally:
                admission.leave(call, answer)
        except asyncio.CancelledError:
            if not await admission.reports_stop(call, answer):
                raise

    async def _work_on(self, work: Work, call: Call, answer: Answer, receive: Receive) -> None:
        token = begin_work(work)
        try:
            await self._pass_on(call, answer, receive)
        except Exception as error:
            if self.failures is None or answer.has_begun:
                raise
            await answer.fail(self.failures.failure(error, call.scope))
        finally:
            end_work(token)

    def _pass_on(self, call: Call, answer: Answer, receive: Receive) -> Awaitable[None]:
        """Pass a call on to the app, or to the process that has its session."""
        sessions, scope = self.sessions, call.scope
        if sessions is not None:
            cookies = call.cookies
            known = None if cookies is None else sessions.read(cookies)
            if sessions.siblings is not None and known is not None:
                holder = sessions.siblings.holder_of(known.life)
                if holder is not None:
                    return sessions.siblings.pass_on(holder, scope, receive, answer.send)
            answer.session = sessions.open(known, scope)
            scope[SET_COOKIE_SCOPE_KEY] = answer.session.set_cookie
        return self.app(scope, receive, answer.send)


class RolloutContextMiddleware(CallMiddleware):
    """Middleware that runs handlers in the context of a rollout.

    The caller names the rollout in a header or in the path: `/ng-rollout/<id>/…`.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, knows_rollouts=True)
