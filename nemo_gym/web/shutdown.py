"""A uvicorn server that limits its connections and handles a stop request at once, not only at its next tick."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType

import uvicorn

from nemo_gym.config.tls import Tls
from nemo_gym.http.tls import server_context
from nemo_gym.web.admission import stopped_tasks
from nemo_gym.web.connections import Connection, Connections

TICK_S = 1.0
"""Seconds between updates of the date in response headers, and between checks of the connections."""
POLL_S = 0.005
"""Seconds between checks whether all running calls have ended, because uvicorn does not signal their end."""
HANDSHAKE_S = 10.0
"""Timeout of a TLS handshake. A caller that sends nothing occupies a connection for this long."""
CLOSE_S = 2.0
"""Seconds in which a caller must confirm the end of a TLS connection."""


class QuickShutdownServer(uvicorn.Server):
    """A server that stops at once if no call is running. Plain uvicorn first waits for up to two ticks of 0.1 s."""

    def __init__(self, config: uvicorn.Config, tls: Tls | None = None) -> None:
        """With `tls`, unix sockets stay unencrypted, because only the user's own processes can open them."""
        config.http = Connection
        super().__init__(config)
        self._tls = tls
        self.server_state: Connections = Connections()
        self._stop_requested = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def request_stop(self) -> None:
        """Stop the server in the same way as a signal does. Must be called in the server's own event loop."""
        self.should_exit = True
        self._stop_requested.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal to stop, which may arrive before the event loop runs."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_requested.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None or sockets is None:
            await super().startup(sockets)
            return
        public = [each for each in sockets if each.family != socket.AF_UNIX]
        await super().startup([each for each in sockets if each not in public])
        await listen_with_tls(self, public, self._tls)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Pass 0, because uvicorn updates the date only at every tenth tick: 0, 10, 20 and so on.
        while not await self.on_tick(0):
            self.server_state.check()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_requested.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event
                    await asyncio.sleep(POLL_S)
        stopped_tasks.update(state.tasks)
        for task in state.tasks:
            task.cancel(msg="the server stops, and its grace period for calls has ended")
        if not self.force_exit:
            await self.lifespan.shutdown()


@asynccontextmanager
async def answering(config: uvicorn.Config, listener: socket.socket, tls: Tls | None = None) -> AsyncIterator[None]:
    """Serve an app on this socket until the block ends. An idle server stops at once."""
    server = _PartOfProcess(config, tls)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.request_stop()
        await task


class _PartOfProcess(QuickShutdownServer):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def listen_with_tls(server: uvicorn.Server, listeners: Iterable[socket.socket], tls: Tls) -> None:
    """Serve TLS on `listeners`. Call this after the server has started its plain listeners."""
    config, context = server.config, server_context(tls)

    def new_connection() -> asyncio.Protocol:
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=server.server_state, app_state=server.lifespan.state
        )

    for listener in listeners:
        server.servers.append(
            await asyncio.get_running_loop().create_server(
                new_connection,
                sock=listener,
                ssl=context,
                backlog=config.backlog,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        )
