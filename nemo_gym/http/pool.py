"""The pool of connections to nemo_gym's servers, with a stack of idle connections per address.

If the process has reached its limit on open files, requests wait until it may open another file.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.ports import notice_lost_machines
from nemo_gym.config.settings import http_url
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.context.current import Wait
from nemo_gym.http.connection import LONGEST_ALARM_S, NEAR_S, Connection, Limits, Request
from nemo_gym.http.open_files import TOO_MANY_FILES, has_room, is_out_of_files, no_free_connection
from nemo_gym.http.reply import BrokenReply, NoFreeConnection, NotConnected, NotTrusted
from nemo_gym.http.tls import client_context, reason_of

BACKLOG_PAUSE_S = 0.005
CLOSE_S = 1.0
"""Seconds for the other side to confirm the end of a TLS connection."""
SHORTAGE_CHECK_S = 0.1
"""Seconds between checks whether another file may be opened. Other code may have closed one in the meantime."""


class Shortage:
    """A queue of origins with requests that wait because the process may not open another file."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pools: WeakSet[Pool] = WeakSet()
        self._loop = loop
        self._origins: deque[Origin] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._origins)

    def add(self, origin: Origin) -> None:
        """Queue an origin whose requests wait for a file descriptor. Close an idle connection to make room."""
        if origin not in self._origins:
            self._origins.append(origin)
        self.close_one_idle()
        self._check_later()

    def close_one_idle(self) -> None:
        """Close a connection that no request uses, if there is one."""
        any(pool.close_one_idle() for pool in list(self.pools))

    def ease(self) -> None:
        """Let one waiting request open a connection, if the process may open another file."""
        for _ in range(len(self._origins)):
            if not has_room():
                break
            origin = self._origins.popleft()
            # Move this origin to the end of the queue, so that the others have their turn first.
            if origin.has_waiting:
                self._origins.append(origin)
                if origin.hand_on_place():
                    break
        self._check_later()

    def _check_later(self) -> None:
        if self._timer is None and self._origins:
            self._timer = self._loop.call_later(SHORTAGE_CHECK_S, self._check)

    def _check(self) -> None:
        self._timer = None
        self.ease()


_shortages: WeakValueDictionary[asyncio.AbstractEventLoop, Shortage] = WeakValueDictionary()


class Pool:
    """The connections of one event loop, and the timer that closes idle ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, tls: Tls | None = None) -> None:
        self.loop = loop
        self.limits = limits
        self.tls = tls
        self.connections: set[Connection] = set()
        self.is_closed = False
        self.emptied = asyncio.Event()
        self._origins: dict[tuple[str, int, str | None], Origin] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.shortage = _shortages.setdefault(loop, Shortage(loop))
        self.shortage.pools.add(self)

    def origin(self, host: str, port: int, uds: str | None) -> Origin:
        key = (host, port, uds)
        return self._origins.get(key) or self._origins.setdefault(key, Origin(self, host, port, uds))

    def watch(self) -> None:
        """Check the timeouts of all connections regularly, for as long as any connection exists."""
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
        # Build a list, because `any` of a generator would skip the remaining origins.
        if any([origin.close_idle() for origin in self._origins.values()]):
            self.expect_idle()
        # Forget unused origins. Each rollout may have its own endpoint, so origins would accumulate.
        self._origins = {key: origin for key, origin in self._origins.items() if origin.is_in_use}

    def close_one_idle(self) -> bool:
        """Close an idle connection, of any origin. Return False if there is none."""
        return any(origin.close_one_idle() for origin in self._origins.values())

    def close(self) -> None:
        self.is_closed = True
        for timer in (self._sweep, self._watch):
            if timer is not None:
                timer.cancel()
        for origin in self._origins.values():
            origin.fail_waiting("the client was closed while the request waited for a free connection")
        for connection in list(self.connections):
            connection.fail(BrokenReply, "the client was closed before the reply was complete")
        self.note_if_emptied()

    def note_if_emptied(self) -> None:
        if self.is_closed and not self.connections:
            self.emptied.set()


class Origin:
    """The connections to one address: a stack of idle ones, and a queue of requests that wait for one."""

    def __init__(self, pool: Pool, host: str, port: int, uds: str | None) -> None:
        self.pool = pool
        self.host = host.strip("[]")
        self.port = port
        self.uds = uds
        self.is_loopback = is_loopback(self.host)
        self.authority = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        # If there is a port, the unix socket is only a shortcut to the server at that address, so show the address.
        self.url = f"http+unix:{uds}:" if uds and not port else http_url(self.host, port, scheme_of(pool.tls))
        self._idle: deque[Connection] = deque()
        self._open = 0
        self._opening = 0
        # A waiter receives a connection, or None for the right to open one (already counted in `_opening`).
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._is_short = False

    def take_idle(self) -> Connection | None:
        """Return the most recently used idle connection that is still usable, or None if there is none."""
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
        """Return a new connection. If a limit on connections or open files is reached, wait for a free one."""
        is_first = False
        if self._has_place() and not self.has_waiting:
            self._opening += 1
            if (connection := await self._connect(request)) is not None:
                return connection
        while True:
            handed = await self._wait_in_queue(request, is_first=is_first)
            if handed is None:
                if (connection := await self._connect(request)) is not None:
                    return connection
                # Wait again, at the front of the queue, because no file descriptor is free for a new connection.
                is_first = True
            elif handed.is_usable():
                return handed
            else:
                handed.drop()

    @property
    def has_waiting(self) -> bool:
        """Whether requests are waiting because this process cannot open more files."""
        self._is_short = self._is_short and any(not waiter.done() for waiter in self._queue)
        return self._is_short

    @property
    def is_in_use(self) -> bool:
        """Whether a connection is open or being opened, or a request is waiting for one."""
        return bool(self._open or self._opening or self._queue)

    def put_back(self, connection: Connection) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self.pool.shortage:
            # Close the connection, because requests to another address wait for a file descriptor.
            connection.drop()
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
        if self.pool.shortage:
            # Check for room later, because the event loop closes the descriptor only after this call.
            self.pool.loop.call_soon(self.pool.shortage.ease)

    def close_one_idle(self) -> bool:
        """Close the longest-idle connection. Return False if there is no idle connection."""
        while self._idle:
            connection = self._idle.popleft()
            if not connection.is_lost:
                connection.drop()
                return True
        return False

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

    async def _wait_in_queue(self, request: Request, *, is_first: bool) -> Connection | None:
        if self.pool.is_closed:
            raise NotConnected(request.message("the client was closed while the request waited for a free connection"))
        limit_s = min(request.timeouts.queue_s, request.left_s, LONGEST_ALARM_S)
        waiter: asyncio.Future[Connection | None] = self.pool.loop.create_future()
        (self._queue.appendleft if is_first else self._queue.append)(waiter)
        if self._is_short:
            self.pool.shortage.add(self)
        try:
            with Wait(f"a free connection to {self.url}") as wait:
                wait.trouble = TOO_MANY_FILES if self._is_short else "max_connections are in use"
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
            most = self.pool.limits.max_connections
            why = f"none of the {most} connections (max_connections) became free within {limit_s:.3g} s"
            raise NoFreeConnection(
                request.message(no_free_connection(request.took_s) if self._is_short else why)
            ) from None

    def _return_to_queue(self, handed: Connection | None) -> None:
        if handed is not None:
            self.put_back(handed)
            return
        self._opening -= 1
        self._hand_on_places()

    def _has_place(self) -> bool:
        limit = self.pool.limits.max_connections
        return limit is None or self._open + self._opening < limit

    def _hand_on_places(self) -> None:
        if self._is_short:
            return
        while self._queue and self._has_place():
            self.hand_on_place()

    def hand_on_place(self) -> bool:
        """Let one waiting request open a connection. Return False if no request is waiting or the limit is reached."""
        while self._queue and self._has_place():
            waiter = self._queue.popleft()
            if not waiter.done():
                self._opening += 1
                waiter.set_result(None)
                return True
        return False

    async def _connect(self, request: Request) -> Connection | None:
        """Open a connection that the caller has counted in `_opening`. Return None if no more files may be opened."""
        limit_s = min(request.timeouts.connect_s, request.left_s, LONGEST_ALARM_S)
        connection = Connection(self, self.pool.loop, self.pool.limits)
        try:
            if not has_room():
                self._is_short = True
                return None
            async with asyncio.timeout(limit_s):
                await self._open_stream(connection)
        except TimeoutError:
            why = f"no connection within {limit_s:.3g} s: the server does not accept connections"
            raise NotConnected(request.message(why)) from None
        except ssl.SSLError as error:
            assert self.pool.tls is not None
            raise NotTrusted(request.message(reason_of(error, self.pool.tls))) from error
        except (OSError, UnicodeError) as error:
            if is_out_of_files(error):
                self._is_short = True
                return None
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else str(error)
            why = f"no connection: {reason} (after {request.took_s:.2f} s). Is the server running there?"
            raise NotConnected(request.message(why)) from error
        finally:
            self._opening -= 1
            self._hand_on_places()
        if self.pool.is_closed:
            connection.drop()
            raise NotConnected(request.message("the client was closed while it opened a connection"))
        if connection.transport.is_closing():
            raise NotConnected(request.message("the server accepted the connection but closed it immediately"))
        if self.pool.shortage:
            # Let other waiting requests try as well, because this request succeeded in opening a file.
            self.pool.shortage.ease()
        return connection

    def _tls_options(self) -> dict[str, Any]:
        tls = self.pool.tls
        if tls is None:
            return {}
        return {"ssl": client_context(tls), "server_hostname": tls.name_at(self.host), "ssl_shutdown_timeout": CLOSE_S}

    async def _open_stream(self, connection: Connection) -> None:
        loop = self.pool.loop
        try:
            if self.uds:
                await loop.create_unix_connection(lambda: connection, sock=await connected_unix_socket(self.uds))
            else:
                transport, _ = await loop.create_connection(
                    lambda: connection, self.host, self.port, **self._tls_options()
                )
                if not self.is_loopback:
                    notice_lost_machines(transport.get_extra_info("socket"))
        except BaseException:
            # If opening is cancelled, uvloop may close a new connection without reporting the loss. Report it here.
            connection.connection_lost(None)
            raise


async def wait_for_room() -> None:
    """Wait until this process may open another connection, for calls that do not use a `Pool`."""
    shortage = _shortages.get(asyncio.get_running_loop())
    while not has_room():
        if shortage is not None:
            shortage.close_one_idle()
        await asyncio.sleep(SHORTAGE_CHECK_S)


async def connected_unix_socket(path: str) -> socket.socket:
    """Return a connected socket, without blocking.

    If the server's backlog is full, a TCP connection waits, but a unix socket fails at once with EAGAIN. asyncio
    mistakes EAGAIN for a connection in progress. This function therefore retries until the socket is connected.
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
