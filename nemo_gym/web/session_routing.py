"""Routing of each call to the process that has its session, for servers with several processes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from nemo_gym.calls.problems import failure_of_call
from nemo_gym.context.deadline import time_left_for_callee, time_left_s
from nemo_gym.errors import EnvironmentFailed, ServerCallError
from nemo_gym.http.internal import OWN_HEADERS, InternalClient
from nemo_gym.schemas.rollout import ROLLOUT_HEADER, RUN_TOKEN_HEADER, TIME_LEFT_HEADER
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY
from nemo_gym.web.in_process import Answer, whole_body

NOT_FORWARDED = OWN_HEADERS | {TIME_LEFT_HEADER.encode()}
OF_THE_PROCESS = OWN_HEADERS | {b"date", b"server"}
"""Headers that each process sets in its own responses."""


class SessionRouting:
    """The processes of one server, including this one.

    A session's mark begins with the number of its process, so that every process can find it.
    """

    def __init__(self, server: str, number: int, sockets: Sequence[str], run_token: str | None = None) -> None:
        """`sockets` are the unix sockets of the individual processes, by process number."""
        self.server = server
        self.number = number
        self._sockets = sockets
        self._run_token = run_token
        self._client = InternalClient()

    def mark(self, life: str) -> str:
        """Return the mark of sessions that this start of the process begins."""
        return f"{self.number}.{life}"

    def socket_of(self, mark: object) -> str | None:
        """Return the socket of the process that issued a mark; None for this process or an unknown one."""
        number, is_marked, _ = mark.partition(".") if isinstance(mark, str) else ("", "", "")
        if not is_marked or not number.isdecimal() or int(number) == self.number or int(number) >= len(self._sockets):
            return None
        return self._sockets[int(number)]

    async def pass_on(self, socket: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call to another process. Raises `ServerLost` if that process has died."""
        path = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        headers = [(name, value) for name, value in scope["headers"] if name not in NOT_FORWARDED]
        if (left_s := time_left_s()) is not None:
            headers.append((TIME_LEFT_HEADER.encode(), b"%.3f" % time_left_for_callee(left_s)))
        rollout_id = scope.get(ROLLOUT_ID_SCOPE_KEY)
        if rollout_id and all(name != ROLLOUT_HEADER.encode() for name, _ in headers):
            # The id was in the path, and the prefix has been removed.
            headers.append((ROLLOUT_HEADER.encode(), rollout_id.encode()))
        if self._run_token:
            # The caller's own token was removed when the call was admitted.
            headers.append((RUN_TOKEN_HEADER.encode(), self._run_token.encode()))
        try:
            reply = await self._client.request(
                scope["method"], self.server, 0, f"{path}?{query}" if query else path,
                body=await whole_body(receive), headers=headers, uds=socket,
            )  # fmt: skip
        except ServerCallError as error:
            raise failure_of_call(
                error, server=self.server, otherwise=EnvironmentFailed, during="the process that has the session"
            ) from error
        kept = [(name, value) for name, value in reply.raw_headers if name.lower() not in OF_THE_PROCESS]
        await Answer(reply.status, kept, b"").with_body(reply.body).send(send)

    async def aclose(self) -> None:
        await self._client.close()
