"""One process of a run, with everything needed to start and restart it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from nemo_gym.config.process import HeadSettings, ProcessSettings, ServerInstance
from nemo_gym.launcher.base import ProcessOrder, ServerProcess, Starter
from nemo_gym.launcher.watch import Watcher


@dataclass
class Place:
    """One process of a run, including its restarts."""

    name: str
    """The server's name, followed by `#<n>` for each process after the first."""
    server: str | None
    """The name of the server; None for the head server."""
    starter: Starter
    listeners: list[socket.socket]
    """The listening sockets, which stay open in this process as long as the run lasts. During a restart, callers
    therefore wait in the backlog instead of being refused, and no other process can take the port."""
    settings: ProcessSettings | Callable[[], HeadSettings]
    """The settings of the process. Those of a server are fixed. Those of the head server are computed at each start,
    because they list the instances."""
    process: ServerProcess = field(init=False)
    """The process that was started last. It may have ended."""
    _updates: int | None = field(default=None, init=False)
    """The writing end of the head server's settings pipe, which stays open for updates; None for other servers."""

    def fill(self, watcher: Watcher) -> None:
        """Start a process. Raise `LaunchError` if the starter can no longer start processes."""
        settings_read, settings_write = os.pipe()
        log_read, log_write = os.pipe()
        report_read, report_write = os.pipe()
        process = ServerProcess(self.starter, name=self.name, log_fd=log_read, report_fd=report_read)
        try:
            order = ProcessOrder(
                settings_read, report_write, log_write, tuple(each.fileno() for each in self.listeners)
            )
            process.pid = self.starter.start(order)
        except BaseException:
            for descriptor in (settings_write, log_read, report_read):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (settings_read, log_write, report_write):
                os.close(descriptor)
        self.process = process
        watcher.add(process)
        self._hand_over(settings_write)

    def send(self, instance: ServerInstance) -> None:
        """Send a changed instance to the head server. Do nothing if this is the process of another server."""
        if self._updates is not None:
            # Ignore a full or broken pipe. A head server that is restarted receives all instances with its settings.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._updates, _line(instance))

    def close_listeners(self) -> None:
        """Close the listening sockets, so that waiting callers fail."""
        for listener in self.listeners:
            listener.close()

    def close(self) -> None:
        """Close the settings pipe."""
        updates, self._updates = self._updates, None
        if updates is not None:
            os.close(updates)

    def _hand_over(self, pipe: int) -> None:
        self.close()
        settings = self.settings() if callable(self.settings) else self.settings
        # Ignore a failed write. If the child has died already, its report pipe shows that.
        with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb", closefd=False) as writing:
            writing.write(_line(settings))
        if isinstance(settings, HeadSettings):
            os.set_blocking(pipe, False)
            self._updates = pipe
        else:
            os.close(pipe)


def _line(message: ProcessSettings | HeadSettings | ServerInstance) -> bytes:
    return message.model_dump_json(fallback=str).encode() + b"\n"
