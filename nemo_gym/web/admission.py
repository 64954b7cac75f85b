"""Who may call a server, how many at once, and for how long."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR, RUN_TOKEN_KEY
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.context.current import Wait
from nemo_gym.errors import Overloaded, RolloutTimedOut, ServerLost
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER, RUN_ID_HEADER, RUN_TOKEN_HEADER
from nemo_gym.web.call import Call, too_large
from nemo_gym.web.in_process import OWN_CALL_SCOPE_KEY
from nemo_gym.web.limits import CallLimits
from nemo_gym.web.telemetry import MEDIA_TYPE as METRICS_MEDIA_TYPE
from nemo_gym.web.telemetry import METRICS_PATH, OTHER_ROUTE, Telemetry
from nemo_gym.web.timers import Timers

logger = logging.getLogger(__name__)

READS = frozenset({"GET", "HEAD"})
LIVENESS_PATHS = frozenset({"/", "/livez", "/readyz", "/healthz", "/health"})
RETRY_AFTER_S = 1
_RUN_ID = RUN_ID_HEADER.encode()
_RUN_TOKEN = RUN_TOKEN_HEADER.encode()


class Admission:
    """Lets calls in, one after the other where they are too many, and counts what became of them."""

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
    ) -> None:
        """`admits` may let in a call without the run's token; `secrets` are hidden in what is told of failures."""
        self.server = server
        self.telemetry = telemetry
        self.limits = limits or CallLimits()
        self.run_token = run_token
        self.run_id = run_id.encode()
        self.admits = admits
        self.secrets = secrets or SecretValues()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarms: Timers | None = None

    def is_open_to(self, scope: Scope) -> bool:
        """Whether a call needs no place: a question for liveness, or a part of a call that has one."""
        if scope["method"] in READS and scope["path"] in LIVENESS_PATHS:
            return True
        return OWN_CALL_SCOPE_KEY in scope

    async def lets_in(self, call: Call) -> bool:
        """Give the call a place, as soon as there is one; where it gets none it has been answered: False."""
        call.secrets = self.secrets
        if self.run_token is not None and not self._knows(call):
            await call.refuse(401, "no run token", _wants_token(self.server), {"www-authenticate": "Bearer"})
            return False
        if self.run_id and call.headers.get(_RUN_ID, self.run_id) != self.run_id:
            # The port was another run's before: whatever this caller began is gone with it.
            told = f"{self.server} belongs to another run; the one that this call is meant for has ended"
            await call.answer_error(ServerLost(told, server=self.server))
            return False
        if call.scope["path"] == METRICS_PATH and call.scope["method"] in READS:
            await call.answer(200, METRICS_MEDIA_TYPE, self.telemetry.text().encode())
            return False
        if call.body_bytes > self.limits.body_bytes:
            await call.refuse(413, "too large", too_large(self.limits.body_bytes))
            return False
        if self.telemetry.in_flight < self.limits.in_flight:
            self.telemetry.in_flight += 1
            return True
        return await self._got_place(call)

    def watch(self, call: Call, ends_at: float | None) -> None:
        """Let the call be cancelled when its time is over or its caller has gone."""
        loop = asyncio.get_running_loop()
        if self._alarms is None or self._alarms.loop is not loop:
            self._alarms = Timers(loop)
        call.watch(self.limits, self._alarms, ends_at)

    def leave(self, call: Call) -> None:
        """Count a call that has ended, and hand its place to the next one that waits."""
        self._free_place()
        route = getattr(call.scope.get("route"), "path", OTHER_ROUTE)
        self.telemetry.count(route, call.status, time.monotonic() - call.began_at)

    async def tell_end(self, call: Call, waits: Sequence[Wait]) -> None:
        """Tell the caller that its time is over, and what was awaited; nobody, where the caller has gone."""
        if call.caller_has_gone:
            self.telemetry.abandoned += 1
            logger.info("%s given up: its caller has gone", call.scope["path"])
            return
        told = f"the rollout's time was over while {self.server} worked on {call.scope['path']}"
        if waits:
            told += f", waiting for {waits[-1]}"
        logger.warning("%s", told)
        error = RolloutTimedOut(told, server=self.server)
        if call.has_begun_answer:
            raise error from None
        await call.answer_error(error)

    def _knows(self, call: Call) -> bool:
        """Whether the caller belongs to the run; what shows it goes no further."""
        expected = (self.run_token or "").encode()
        authorization = call.headers.get(b"authorization", b"")
        # Clients of model endpoints have one place for a key, and no header of ours.
        bearer = authorization[7:].strip() if authorization[:7].lower() == b"bearer " else b""
        for given in (call.headers.get(_RUN_TOKEN, b""), bearer):
            if hmac.compare_digest(given, expected):
                call.scope["headers"] = [each for each in call.scope["headers"] if given not in each[1]]
                return True
        return self.admits is not None and self.admits(call.scope)

    async def _got_place(self, call: Call) -> bool:
        """Wait for a place; where there is no room to wait in, the call is answered: False."""
        telemetry = self.telemetry
        if telemetry.queued >= self.limits.queued:
            telemetry.refused += 1
            told = f"{self.server} has {telemetry.in_flight} calls at work and {telemetry.queued} waiting"
            come_again = {NOT_BEGUN_HEADER: "1", "retry-after": str(RETRY_AFTER_S)}
            await call.answer_error(Overloaded(told, server=self.server), come_again)
            return False
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        telemetry.queued += 1
        try:
            ends_at = call.ends_at()
            async with asyncio.timeout(None if ends_at is None else ends_at - time.monotonic()):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._free_place()
            if not isinstance(error, TimeoutError):
                raise
            told = f"the rollout's time was over while {call.scope['path']} waited for a place at {self.server}"
            await call.answer_error(RolloutTimedOut(told, server=self.server))
            return False
        finally:
            telemetry.queued -= 1
            telemetry.queue_seconds += time.monotonic() - call.began_at
        return True

    def _free_place(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.telemetry.in_flight -= 1


def _wants_token(server: str) -> str:
    return (
        f"{server} answers only calls of its own run. Send the run's token as the header {RUN_TOKEN_HEADER}, or as "
        f"'Authorization: Bearer …'. The commands take it from +{RUN_TOKEN_KEY}=…, from env.yaml or from "
        f"{RUN_TOKEN_ENV_VAR}; on the machine where the run was started they find it by themselves."
    )
