"""Admission of calls to a server: by the run's token and by free slots."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from weakref import WeakSet

from starlette.types import Receive, Scope

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.context.current import Wait
from nemo_gym.errors import AgentFailed, Overloaded, RolloutTimedOut, ServerLost
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER, RUN_ID_HEADER, RUN_TOKEN_HEADER
from nemo_gym.web.answer import Answer
from nemo_gym.web.browsers import BrowserCheck
from nemo_gym.web.call import READS, Call, is_health_check
from nemo_gym.web.in_process import OWN_CALL_SCOPE_KEY
from nemo_gym.web.limits import CallLimits, too_large
from nemo_gym.web.telemetry import MEDIA_TYPE as METRICS_MEDIA_TYPE
from nemo_gym.web.telemetry import METRICS_PATH, OTHER_ROUTE, Telemetry
from nemo_gym.web.timers import Timers
from nemo_gym.web.watchdog import Watchdog

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1
TIMED_PATHS = ("/run", RESPONSES_PATH)
"""Paths of an agent whose responses report the time of its calls. An agent may call its own `/v1/responses`."""
_RUN_ID = RUN_ID_HEADER.encode()
_RUN_TOKEN = RUN_TOKEN_HEADER.encode()

stopped_tasks: WeakSet[asyncio.Task[object]] = WeakSet()
"""The tasks of the calls that a stopping server has cancelled."""


class Admission:
    """Control of the calls to a server: it admits calls, queues those beyond a limit and rejects the rest."""

    def __init__(
        self,
        *,
        server: str,
        telemetry: Telemetry,
        limits: CallLimits | None = None,
        run_token: str | None = None,
        run_id: str = "",
        admits: Callable[[Scope], bool] | None = None,
        secrets: SecretValues | None = None,
        browsers: BrowserCheck | None = None,
        tier: str | None = None,
    ) -> None:
        """`admits` decides whether to accept a call without the run's token. `secrets` are masked in error responses.

        `tier` is the tier of the failures that this server itself causes, such as an overload.
        """
        self.server = server
        self.tier = tier
        self.timed_paths = TIMED_PATHS if tier == AgentFailed.default_tier else ()
        self.telemetry = telemetry
        self.limits = limits or CallLimits()
        self.run_token = run_token
        self.run_id = run_id.encode()
        self.admits = admits
        self.secrets = secrets or SecretValues()
        self._browsers = browsers
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timers: Timers | None = None

    def objection(self, call: Call) -> str | None:
        """Return why a call that a browser sends for a web page is rejected, or None if the call may pass."""
        if self._browsers is None or OWN_CALL_SCOPE_KEY in call.scope:
            return None
        return self._browsers.objection(call.scope, call.headers)

    def is_open_to(self, scope: Scope) -> bool:
        """Return whether a call skips admission: a health check, or a server's call to itself within another call."""
        return is_health_check(scope) or OWN_CALL_SCOPE_KEY in scope

    async def lets_in(self, call: Call, answer: Answer) -> bool:
        """Wait for a free slot. Return False if the call was rejected and the answer already sent."""
        if self.run_token is not None and not self._knows(call):
            await answer.reject(401, "no run token", _wants_token(self.server), {"www-authenticate": "Bearer"})
            return False
        if self.run_id and call.headers.get(_RUN_ID, self.run_id) != self.run_id:
            # Fail the call, because it is meant for an earlier run or server at this address, whose state is lost.
            reason = f"{self.server} belongs to another run; the run that this call is meant for has ended"
            if call.headers[_RUN_ID].partition(b" ")[0] == self.run_id.partition(b" ")[0]:
                reason = f"the server that this call is meant for is lost; {self.server} now has its address"
            await answer.fail(ServerLost(reason, server=self.server, tier=self.tier))
            return False
        if call.scope["path"] == METRICS_PATH and call.scope["method"] in READS:
            await answer.write(200, METRICS_MEDIA_TYPE, self.telemetry.text().encode())
            return False
        if call.body_bytes > (most := self.limits.bytes_at(call.path)):
            await answer.reject(413, "too large", too_large(most))
            return False
        if self.telemetry.in_flight < self.limits.in_flight:
            self.telemetry.in_flight += 1
            return True
        return await self._got_slot(call, answer)

    def watchdog(self, call: Call, answer: Answer, receive: Receive, ends_at: float | None) -> Watchdog:
        loop = asyncio.get_running_loop()
        if self._timers is None or self._timers.loop is not loop:
            self._timers = Timers(loop)
        return Watchdog(call, answer, receive, limits=self.limits, timers=self._timers, ends_at=ends_at)

    def leave(self, call: Call, answer: Answer) -> None:
        """Count a finished call and pass its slot to the next waiting call."""
        if self._waiting:
            self._free_slot()
        else:
            self.telemetry.in_flight -= 1
        route = getattr(call.scope.get("route"), "path", OTHER_ROUTE)
        self.telemetry.count(route, answer.status, time.monotonic() - call.began_at)

    async def report_end(self, call: Call, answer: Answer, waits: Sequence[Wait], *, caller_has_gone: bool) -> None:
        """Report that the deadline has passed, and which reply the handler was waiting for, if any.

        The failure names the server that did not reply. If the caller hung up, only count the call.
        """
        if caller_has_gone:
            self.telemetry.abandoned += 1
            logger.info("%s cancelled: its caller has gone", call.path)
            return
        message = f"the rollout's time was over while {self.server} worked on {call.path}"
        if waits:
            message += f", waiting for {waits[-1]}"
        logger.warning("%s", message)
        error = RolloutTimedOut(message, server=(waits[-1].server if waits else None) or self.server)
        if answer.has_begun:
            raise error from None
        await answer.fail(error)

    async def reports_stop(self, call: Call, answer: Answer) -> bool:
        """Answer a call that the server cancels because it stops, since uvicorn would answer a plain error 500.

        Return False if the response has already begun, or if something other than the server has cancelled the call.
        """
        if asyncio.current_task() not in stopped_tasks or answer.has_begun:
            return False
        reason = f"{self.server} stopped while it worked on {call.path}"
        await answer.fail(ServerLost(reason, server=self.server, tier=self.tier))
        return True

    def _knows(self, call: Call) -> bool:
        """Return whether the caller belongs to the run. Remove the token, so that no handler sees it."""
        expected = (self.run_token or "").encode()
        named, authorization = call.headers.get(_RUN_TOKEN, b""), call.headers.get(b"authorization", b"")
        # Also accept the token as an API key, because clients of model endpoints cannot set nemo_gym's header.
        bearer = authorization[7:].strip() if authorization[:7].lower() == b"bearer " else b""
        if hmac.compare_digest(named, expected) or hmac.compare_digest(bearer, expected):
            hidden = (_RUN_TOKEN, b"authorization") if expected in authorization else (_RUN_TOKEN,)
            call.scope["headers"] = [each for each in call.scope["headers"] if each[0] not in hidden]
            return True
        return self.admits is not None and self.admits(call.scope)

    async def _got_slot(self, call: Call, answer: Answer) -> bool:
        telemetry = self.telemetry
        if telemetry.queued >= self.limits.queued:
            telemetry.refused += 1
            reason = f"{self.server} is full: {telemetry.in_flight} calls in progress, {telemetry.queued} in the queue"
            retry = {NOT_BEGUN_HEADER: "1", "retry-after": str(RETRY_AFTER_S)}
            await answer.fail(Overloaded(reason, server=self.server, tier=self.tier), retry)
            return False
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        telemetry.queued += 1
        try:
            ends_at = call.ends_at()
            async with asyncio.timeout(None if ends_at is None else ends_at - time.monotonic()):
                await slot
        except BaseException as error:
            if slot.done() and not slot.cancelled():
                self._free_slot()
            if not isinstance(error, TimeoutError):
                raise
            reason = f"the rollout's time was over while {call.path} waited for a free slot at {self.server}"
            await answer.fail(RolloutTimedOut(reason, server=self.server))
            return False
        finally:
            telemetry.queued -= 1
            telemetry.queue_seconds += time.monotonic() - call.began_at
        return True

    def _free_slot(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self.telemetry.in_flight -= 1


def _wants_token(server: str) -> str:
    return (
        f"{server} requires its run token. Send it as the header {RUN_TOKEN_HEADER} or as 'Authorization: Bearer …'. "
        f"The commands read it from --run_token …, env.yaml or {RUN_TOKEN_ENV_VAR}; on the machine that started "
        "the run they find it by themselves."
    )
