"""The pool of connections to our own servers, with a stack of idle connections per address."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from contextlib import suppress

from nemo_gym.http.connection import LONGEST_ALARM_S, NEAR_S, Connection, Limits, Request
from nemo_gym.http.reply import BrokenReply, NotConnected

BACKLOG_PAUSE_S = 0.005


class Pool:
    """The connections of one event loop, and the timer that closes idle ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.connections: set[Connection] = set()
        self.is_closed = False
        self.emptied = asyncio.Event()
        self._origins: dict[tuple[str, int, str | None], Origin] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None

    def origin(self, host: str, port: int, uds: str | None) -> Origin:
        key = (host, port, uds)
        return self._origins.get(key) or self._origins.setdefault(key, Origin(self, host, port, uds))

    def watch(self) -> None:
        """Check the timeouts of all connections regularly while there are any."""
        if self._watch is None and self.connections:
            self._watch = self.loop.call_later(NEAR_S / 2, self._look_ahead)

    def _look_ahead(self) -> None:
        self._watch = None
        now = self.loop.time()
        for connection in self.connections:
            connection.look_ahead(now)
        self.watch()

    def expect_idle(self) -> None:
        if self._sweep is None and not self.is_closed:
            self._sweep = self.loop.call_later(self.limits.idle_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweep = None
        # A list, because `any` of a generator would skip the remaining origins.
        if any([origin.close_idle() for origin in self._origins.values()]):
            self.expect_idle()

    def close(self) -> None:
        self.is_closed = True
        for timer in (self._sweep, self._watch):
            if timer is not None:
                timer.cancel()
        for origin in self._origins.values():
            origin.fail_waiting("the client was closed while this waited for a free connection")
        for connection in list(self.connections):
            connection.fail(BrokenReply, "the client was closed before the reply was complete")
        self.note_if_emptied()

    def note_if_emptied(self) -> None:
        if self.is_closed and not self.connections:
            self.emptied.set()


class Origin:
    """The connections to one address: a stack of idle ones and, if their number is limited, a queue."""

    def __init__(self, pool: Pool, host: str, port: int, uds: str | None) -> None:
        self.pool = pool
        self.host = host.strip("[]")
        self.port = port
        self.uds = uds
        self.authority = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        # With a port, the socket is only a shortcut to the server at that address.
        self.url = f"http+unix:{uds}:" if uds and not port else f"http://{self.authority}"
        self._idle: deque[Connection] = deque()
        self._open = 0
        self._opening = 0
        # A waiter receives a connection, or None for the right to open one (already counted in `_opening`).
        self._queue: deque[asyncio.Future[Connection | None]] = deque()

    def take_idle(self) -> Connection | None:
        """Return the connection that was used last and is still open, or None."""
        idle = self._idle
        if not idle:
            return None
        too_old = self.pool.loop.time() - self.pool.limits.idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since > too_old and connection.is_usable():
                return connection
            connection.drop()
        return None

    async def take_other(self, request: Request) -> Connection:
        """Return a new connection, or wait for a free one at the limit."""
        limit = self.pool.limits.max_connections
        if limit is None or self._open + self._opening < limit:
            self._opening += 1
            return await self._connect(request)
        while True:
            handed = await self._wait_in_queue(request)
            if handed is None:
                return await self._connect(request)
            if handed.is_usable():
                return handed
            handed.drop()

    def put_back(self, connection: Connection) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        connection.idle_since = self.pool.loop.time()
        self._idle.append(connection)
        self.pool.expect_idle()

    def connection_made(self, connection: Connection) -> None:
        self._open += 1
        self.pool.connections.add(connection)
        self.pool.watch()

    def connection_lost(self, connection: Connection) -> None:
        self._open -= 1
        self.pool.connections.discard(connection)
        self.pool.note_if_emptied()
        self._hand_on_places()

    def close_idle(self) -> bool:
        """Close connections that were idle for too long. Return whether any idle ones are left."""
        too_old = self.pool.loop.time() - self.pool.limits.idle_s
        while self._idle and (self._idle[0].is_lost or self._idle[0].idle_since <= too_old):
            self._idle.popleft().drop()
        return bool(self._idle)

    def fail_waiting(self, why: str) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_exception(NotConnected(why))

    async def _wait_in_queue(self, request: Request) -> Connection | None:
        if self.pool.is_closed:
            raise NotConnected(request.message("the client was closed while this waited for a free connection"))
        limit_s = min(request.timeouts.queue_s, request.left_s, LONGEST_ALARM_S)
        waiter: asyncio.Future[Connection | None] = self.pool.loop.create_future()
        self._queue.append(waiter)
        try:
            async with asyncio.timeout(limit_s):
                return await waiter
        except NotConnected as error:
            raise NotConnected(request.message(str(error))) from None
        except BaseException as error:
            with suppress(ValueError):
                self._queue.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._return_to_queue(waiter.result())
            if not isinstance(error, TimeoutError):
                raise
            raise NotConnected(
                request.message(
                    f"none of the {self.pool.limits.max_connections} connections (max_connections) became free "
                    f"within {limit_s:.3g} s"
                )
            ) from None

    def _return_to_queue(self, handed: Connection | None) -> None:
        if handed is not None:
            self.put_back(handed)
            return
        self._opening -= 1
        self._hand_on_places()

    def _hand_on_places(self) -> None:
        limit = self.pool.limits.max_connections
        while self._queue and limit is not None and self._open + self._opening < limit:
            waiter = self._queue.popleft()
            if not waiter.done():
                self._opening += 1
                waiter.set_result(None)

    async def _connect(self, request: Request) -> Connection:
        """Open a connection that the caller has counted in `_opening`."""
        limit_s = min(request.timeouts.connect_s, request.left_s, LONGEST_ALARM_S)
        connection = Connection(self, self.pool.loop, self.pool.limits)
        try:
            async with asyncio.timeout(limit_s):
                await self._open_stream(connection)
        except TimeoutError:
            why = f"no connection within {limit_s:.3g} s: the server does not accept connections"
            raise NotConnected(request.message(why)) from None
        except (OSError, UnicodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else str(error)
            why = f"no connection: {reason} (after {request.took_s:.2f} s). Is the server running there?"
            raise NotConnected(request.message(why)) from error
        finally:
            self._opening -= 1
            self._hand_on_places()
        if self.pool.is_closed:
            connection.drop()
            raise NotConnected(request.message("the client was closed while this was connecting"))
        if connection.transport.is_closing():
            raise NotConnected(request.message("the server accepted the connection but closed it immediately"))
        return connection

    async def _open_stream(self, connection: Connection) -> None:
        loop = self.pool.loop
        try:
            if self.uds:
                await loop.create_unix_connection(lambda: connection, sock=await connected_unix_socket(self.uds))
            else:
                await loop.create_connection(lambda: connection, self.host, self.port)
        except BaseException:
            # The connection may exist even if opening was cancelled; uvloop closes it without calling us.
            connection.connection_lost(None)
            raise


async def connected_unix_socket(path: str) -> socket.socket:
    """Return a connected socket, without blocking.

    While the server's backlog is full, TCP waits, but a unix socket fails at once with EAGAIN. asyncio takes that for
    a connection in progress, so this function connects the socket itself.
    """
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        while True:
            try:
                connecting.connect(path)
                return connecting
            except BlockingIOError:
                await asyncio.sleep(BACKLOG_PAUSE_S)
    except BaseException:
        connecting.close()
        raise
