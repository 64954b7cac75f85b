"""Routing of each call to the process that has its session, for servers with several processes or machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from nemo_gym.calls.address_book import Address
from nemo_gym.calls.directory import Directory
from nemo_gym.calls.problems import failure_of_call
from nemo_gym.config.tls import Tls
from nemo_gym.context.deadline import time_left_for_callee, time_left_s
from nemo_gym.errors import EnvironmentFailed, ServerCallError, ServerLost
from nemo_gym.http.internal import OWN_HEADERS, InternalClient
from nemo_gym.schemas.rollout import ROLLOUT_HEADER, TIME_LEFT_HEADER, run_headers
from nemo_gym.web.failures import ROLLOUT_ID_SCOPE_KEY
from nemo_gym.web.in_process import Answer, whole_body

NOT_FORWARDED = OWN_HEADERS | {TIME_LEFT_HEADER.encode()}
PASSED_ON = b"x-nemo-gym-passed-on"
"""Header of a call that was forwarded by another part of the run, because that part does not have the session."""
OF_THE_PROCESS = OWN_HEADERS | {b"date", b"server"}
"""Response headers that each process sets itself. They are not copied from a forwarded call's reply."""


class Holder(NamedTuple):
    """The process that has a session. For one on another machine, only that machine's part of the run is known."""

    socket: str | None
    """The unix socket of the process; None if the process is on another machine."""
    member: str
    """The name of the part of the run on the process's machine; empty if the run has only one machine."""


class SessionRouting:
    """The processes of one server, including this one.

    A session's mark begins with the name of a part of the run and a process number, so that any process can find the
    process that has the session.
    """

    def __init__(
        self,
        server: str,
        number: int,
        sockets: Sequence[str],
        run_token: str | None = None,
        *,
        member: str = "",
        directory: Directory | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`sockets` are the unix sockets of this machine's processes, by process number; empty for a single process.

        `member`, `directory` and `tls` are needed only for a run on several machines.
        """
        self.server = server
        self.number = number
        self._sockets = sockets
        self._run_token = run_token
        self._member = member
        self._directory = directory
        self._client = InternalClient(tls=tls)

    def mark(self, life: str) -> str:
        """Return the mark of sessions that begin in this process before its next restart."""
        return f"{self._member}{'/' if self._member else ''}{self.number}.{life}"

    def holder_of(self, mark: object) -> Holder | None:
        """Return the process that issued a mark; None for this process or an unknown one."""
        place, is_marked, _ = mark.partition(".") if isinstance(mark, str) else ("", "", "")
        member, _, number = place.rpartition("/")
        if not is_marked or not number.isdecimal():
            return None
        if member != self._member:
            return Holder(None, member) if self._directory is not None and member else None
        if int(number) == self.number or int(number) >= len(self._sockets):
            return None
        return Holder(self._sockets[int(number)], member)

    async def pass_on(self, holder: Holder, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call to another process. Raise `ServerLost` if that process or its machine is lost."""
        path = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        headers = [(name, value) for name, value in scope["headers"] if name not in NOT_FORWARDED]
        if (left_s := time_left_s()) is not None:
            headers.append((TIME_LEFT_HEADER.encode(), b"%.3f" % time_left_for_callee(left_s)))
        rollout_id = scope.get(ROLLOUT_ID_SCOPE_KEY)
        if rollout_id and all(name != ROLLOUT_HEADER.encode() for name, _ in headers):
            # Send the rollout id as a header, because the path no longer has the prefix with the id.
            headers.append((ROLLOUT_HEADER.encode(), rollout_id.encode()))
        # Add the run's token again, because it was removed when the call was admitted.
        headers += run_headers(self._run_token)
        host, port = await self._address_of(holder, headers)
        try:
            reply = await self._client.request(
                scope["method"], host, port, f"{path}?{query}" if query else path,
                body=await whole_body(receive), headers=headers, uds=holder.socket,
            )  # fmt: skip
        except ServerCallError as error:
            raise failure_of_call(
                error, server=self.server, otherwise=EnvironmentFailed, during="the process that has the session"
            ) from error
        kept = [(name, value) for name, value in reply.raw_headers if name.lower() not in OF_THE_PROCESS]
        await Answer(reply.status, kept, b"").with_body(reply.body).send(send)

    async def _address_of(self, holder: Holder, headers: list[tuple[bytes, bytes]]) -> Address:
        if holder.socket is not None or self._directory is None:
            return Address(self.server, 0)
        # Do not forward a call twice. The directory may still list a lost machine under an address that this machine
        # has now. The call would then be forwarded to this machine again.
        was_passed_on = any(name == PASSED_ON for name, _ in headers)
        listed = None if was_passed_on else await self._directory.of_member(self.server, holder.member)
        if listed is None:
            raise ServerLost(
                "the machine that has the state of this rollout is lost",
                server=self.server,
                tier=EnvironmentFailed.default_tier,
            )
        headers.append((PASSED_ON, b"1"))
        return Address(listed.host, listed.port)

    async def aclose(self) -> None:
        await self._client.close()
