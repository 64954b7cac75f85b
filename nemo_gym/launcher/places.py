"""A process's place in a run: with what it is started, the first time and each time after it died."""

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
    """One process of a run, in all of its lives."""

    name: str
    """The server's name, followed by `#<n>` from its second process on."""
    server: str | None
    """The server that it serves; None for the head server."""
    starter: Starter
    listeners: list[socket.socket]
    """Stay open here for as long as the run lasts: while a server is started again its callers wait in the backlog
    instead of being refused, and nobody else can take the port."""
    settings: ProcessSettings | Callable[[], HeadSettings]
    """A server's are the same each time; the head server's tell who runs by then."""
    process: ServerProcess = field(init=False)
    """The present life, or the last one."""
    _news: int | None = field(default=None, init=False)
    """The writing end of the pipe of settings, where it is kept for news."""

    def fill(self, watcher: Watcher) -> None:
        """Start a process. Raises `LaunchError` where none can be started any more."""
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

    def tell(self, instance: ServerInstance) -> None:
        """Let the head server know that this instance is no longer what it was."""
        if self._news is not None:
            # One that does not listen, or is being started again, learns all of it with its next settings.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._news, _line(instance))

    def hang_up(self) -> None:
        """Nobody will answer any more: callers that wait are to hear of it."""
        for listener in self.listeners:
            listener.close()

    def close(self) -> None:
        """Have no more news."""
        news, self._news = self._news, None
        if news is not None:
            os.close(news)

    def _hand_over(self, pipe: int) -> None:
        self.close()
        settings = self.settings() if callable(self.settings) else self.settings
        # A child that died already shows in its report; its settings need not arrive.
        with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb", closefd=False) as writing:
            writing.write(_line(settings))
        if isinstance(settings, HeadSettings):
            os.set_blocking(pipe, False)
            self._news = pipe
        else:
            os.close(pipe)


def _line(told: ProcessSettings | HeadSettings | ServerInstance) -> bytes:
    return told.model_dump_json(fallback=str).encode() + b"\n"
