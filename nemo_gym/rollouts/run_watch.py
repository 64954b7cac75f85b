"""Watch the run whose servers a collection uses, and end the collection when that run ends."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import NoReturn

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import problem_of_body
from nemo_gym.calls.running import live_runs, run_at
from nemo_gym.config.settings import http_url
from nemo_gym.config.tls import scheme_of
from nemo_gym.errors import LaunchError, ServerCallError, ServerLost
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import NoFreeConnection, NotConnected, Reply, Timeouts
from nemo_gym.schemas.rollout import run_headers

PATH = "/metrics"
"""A route that every server has. Unlike the liveness routes, it accepts only callers of the same run."""
CHECK_S = 2.0
GONE_S = 30.0
"""A run without a record on this machine counts as ended after this many seconds without a reply from its servers."""
SETTLE_S = 1.0
"""Seconds to wait before a check, because the servers of a run do not all stop at the same moment."""
RESUME = "Start the run again, and continue with --resume."
PROBE = Timeouts(connect_s=5.0, read_s=5.0, total_s=5.0, queue_s=5.0)


class RunWatch:
    """A watcher of a run. It reads the run's record on this machine or, without a record, calls the run's servers."""

    def __init__(self, client: ServerClient, *, advice: str = RESUME) -> None:
        """`advice` is the last sentence of the error message about an ended run."""
        self._advice = advice
        head, book = client.head_server_config, client.address_book
        self._head = head
        self._tls = book.tls
        record = run_at(head.host, head.port)
        self._record = None if record is not None and record.has_joined else record
        # If the run has several machines, call only its head server, because the other servers may join and leave.
        servers = dict.fromkeys(book.address_of(name) for name in book.servers if book.head is None)
        self._addresses = [(head.host, head.port), *((each.host, each.port) for each in servers)]
        self._headers = run_headers(book.run_token, book.run_id)
        self._loop = asyncio.get_running_loop()
        self._seen_at = self._loop.time()
        self._checking = asyncio.Lock()

    async def watch(self) -> NoReturn:
        """Check the run regularly. Raise `LaunchError` if it has ended."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self._check()

    async def confirm(self) -> None:
        """Check the run after a server was lost. Return if the run is up, and raise `LaunchError` if it has ended."""
        asked_at = self._loop.time()
        if self._record is None:
            await asyncio.sleep(SETTLE_S)
            asked_at += SETTLE_S
        while self._seen_at < asked_at:
            await self._check()
            if self._seen_at < asked_at:
                await asyncio.sleep(CHECK_S)

    async def _check(self) -> None:
        asked_at = self._loop.time()
        async with self._checking:
            # Many rollouts may lose a server at the same time. One check serves all of them.
            if self._seen_at >= asked_at:
                return
            began_at = self._loop.time()
            if self._record is not None:
                if self._record not in await asyncio.to_thread(live_runs):
                    raise self._ended("")
                self._seen_at = began_at
            elif await self._any_answers():
                self._seen_at = began_at
            elif began_at - self._seen_at > GONE_S:
                raise self._ended(f": none of its servers has answered for {began_at - self._seen_at:.0f} s")

    async def _any_answers(self) -> bool:
        async with InternalClient(tls=self._tls) as client:
            for host, port in self._addresses:
                try:
                    reply = await client.request("GET", host, port, PATH, headers=self._headers, timeouts=PROBE)
                except NoFreeConnection:
                    return True
                except NotConnected:
                    continue
                except ServerCallError:
                    # The server accepts connections, so the run is up.
                    return True
                if not _is_of_another_run(reply):
                    return True
        return False

    def _ended(self, how: str) -> LaunchError:
        url = http_url(self._head.host, self._head.port, scheme_of(self._tls))
        return LaunchError(f"the run at {url} has ended{how}. {self._advice}")


def _is_of_another_run(reply: Reply) -> bool:
    """Return whether the reply is from another run, whose server has taken over the address."""
    if reply.status == HTTPStatus.UNAUTHORIZED:
        return True
    problem = problem_of_body(reply.body) if reply.status >= HTTPStatus.BAD_REQUEST else None
    return problem is not None and problem.failure_class == ServerLost.failure_class
