"""A uvicorn server that ends when it is told to, and not at the next of its ticks."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from types import FrameType

import uvicorn

TICK_S = 1.0
"""How often the date in the answers' headers is set."""
LOOK_AGAIN_S = 0.005
"""Between looks whether the calls under way have ended, of which uvicorn tells nobody."""


class QuickShutdownServer(uvicorn.Server):
    """Ends at once where no call is under way: uvicorn's own looks every tenth of a second, twice."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def tell_to_end(self) -> None:
        """End as after a signal; called in the server's own event loop."""
        self.should_exit = True
        self._told.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal says that this is to end; it may come before the event loop runs."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Ten of uvicorn's ticks are one second, and with every tenth it sets the date.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), TICK_S)

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
                while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110 - nobody sets an event
                    await asyncio.sleep(LOOK_AGAIN_S)
        for task in state.tasks:
            task.cancel(msg="the server's patience with its last calls is over")
        if not self.force_exit:
            await self.lifespan.shutdown()
