"""Bring the servers of a run up on this machine, wait until all answer, and take them down again."""

from __future__ import annotations

import contextlib
import http.client
import os
import queue
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nemo_gym.config import RunConfig, ServerConfig, masked_yaml, raw_yaml
from nemo_gym.config.process import HeadSettings, ProcessSettings, ServerInstance
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.base import ProcessOrder, ServerProcess, Starter
from nemo_gym.launcher.environments import interpreters
from nemo_gym.launcher.record import write_record
from nemo_gym.launcher.sockets import HEAD, bind_head, is_loopback, listen
from nemo_gym.launcher.spawn import SpawnStarter
from nemo_gym.launcher.warm import WarmStarter, is_supported
from nemo_gym.launcher.watch import LineSink, Watcher

READY_TIMEOUT_S = 120.0
REMINDER_S = 5.0
STOP_PATIENCE_S = 1.2
LOG_PATIENCE_S = 0.5

Notice = Callable[[str], None]


def launch(
    run: RunConfig,
    *,
    starter: Starter | None = None,
    on_line: LineSink | None = None,
    notice: Notice | None = None,
    log_dir: Path | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
    auto_install: bool = False,
    dry_run: bool = False,
) -> RunningServers:
    """Start every server of a run and the head server, and return once all of them answer.

    `on_line` receives the servers' logs, `notice` what the launcher itself has to say. With `dry_run` each server
    is built from its settings and ends at once. Requirements of a folder that are not met are told by `notice`; with
    `auto_install`, such a folder gets an environment of its own, as every server that is `isolated` does.
    Raises `LaunchError` (or what a server said of its own settings) where one does not come up; then nothing runs.
    """
    told = notice or (lambda text: None)
    pythons = interpreters(run, auto_install=auto_install, notice=told)
    running = RunningServers(run, starter or default_starter(run), on_line, told, log_dir)
    try:
        running.start(pythons, dry_run=dry_run)
        running.wait_until_ready(ready_timeout_s, dry_run=dry_run)
        if not dry_run:
            running.record = write_record(running.run.head.host, running.run.head.port)
    except BaseException:
        running.stop()
        raise
    return running


def default_starter(run: RunConfig) -> Starter:
    """Forks where that is safe; `process_start_method: spawn` asks for fresh interpreters."""
    if is_supported() and run.plain.get("process_start_method", "fork") == "fork":
        return WarmStarter()
    return SpawnStarter()


class RunningServers:
    """The servers of a run; `run` holds the addresses that they were given."""

    def __init__(
        self, run: RunConfig, starter: Starter, on_line: LineSink | None, notice: Notice, log_dir: Path | None
    ) -> None:
        self.run = run
        self.starter = starter
        self._starters = [starter]
        self.notice = notice
        self.record: Path | None = None
        self._watcher = Watcher(on_line, log_dir)
        self._processes: list[ServerProcess] = []
        self._instances: list[ServerInstance] = []
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def instances(self) -> Sequence[ServerInstance]:
        """One entry per server, as the head server tells them."""
        return self._instances

    def start(self, pythons: Mapping[str, Path] | None = None, *, dry_run: bool = False) -> None:
        """Bind every socket first, so that each server can be told where all others will be, then start them.

        `pythons` names the interpreter of each server that has one of its own.
        """
        own = {name: SpawnStarter(str(python)) for name, python in (pythons or {}).items()}
        self._starters += own.values()
        listeners: dict[str, socket.socket] = {}
        try:
            for server in self.run.servers.values():
                written = self.run.written_address(server)
                listeners[server.name] = listen(
                    server.host, server.port, server.name, self.run.port_range, written=written
                )
            head_listener = None if dry_run else bind_head(self.run.head, self.notice, self.run.written_address(None))
            self._note_addresses(listeners, head_listener)
            secret = secrets.token_hex(32)
            for server in self.run.servers.values():
                settings = ProcessSettings.of(self.run, server, cookie_secret=secret, dry_run=dry_run)
                listener = listeners[server.name]
                starter = own.get(server.name, self.starter)
                pids = [self._start_process(name, listener, settings, starter) for name in _worker_names(server)]
                self._instances.append(ServerInstance.of(server, pid=pids[0], started_at=time.time()))
            if head_listener is not None:
                listeners[HEAD] = head_listener
                self._start_process(HEAD, head_listener, _head_settings(self.run, self._instances), self.starter)
        finally:
            # The children have theirs; ours would keep a dead server's callers waiting.
            for listener in listeners.values():
                listener.close()

    def wait_until_ready(self, timeout_s: float, *, dry_run: bool = False) -> None:
        """Return once every process has said that it is ready and its server has answered a request."""
        now = started_at = time.monotonic()
        deadline, remind_at = started_at + timeout_s, started_at + REMINDER_S
        failed: list[ServerProcess] = []
        while waiting := [each for each in self._processes if not each.is_ready and each not in failed]:
            names = ", ".join(each.name for each in waiting)
            if now >= deadline:
                raise LaunchError(
                    f"not ready after {timeout_s:g} s: {names}. +ready_timeout_s=… gives servers longer to start."
                    f"{self._tails(waiting)}"
                )
            if now >= remind_at:
                remind_at = now + REMINDER_S
                self.notice(f"waiting for {names} ({now - started_at:.0f} of {timeout_s:g} s)")
            process = self._next_change(min(deadline, remind_at) - now)
            if process is not None and process.has_ended and not dry_run:
                raise self._failure(process)
            if process is not None and process.has_ended and not process.is_ready:
                # A dry run is there to find mistakes, so it goes on to find all of them.
                failed.append(process)
            now = time.monotonic()
        if failed:
            raise LaunchError("\n".join(str(self._failure(each)) for each in self._processes if each in failed))
        if not dry_run:
            for server in self.run.servers.values():
                _expect_answer(server.name, server.host, server.port)

    def watch(self, timeout_s: float) -> None:
        """Wait for this long, or until a server ends, which raises `LaunchError`."""
        process = self._next_change(timeout_s)
        if process is not None and process.has_ended:
            raise self._failure(process)

    def stop(self) -> None:
        """End every process, politely for a moment, then for certain; nothing is left running."""
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            self._signal_all(signal.SIGTERM)
            deadline = time.monotonic() + STOP_PATIENCE_S
            while self._alive() and time.monotonic() < deadline:
                self._next_change(max(0.0, deadline - time.monotonic()))
            self._signal_all(signal.SIGKILL)
        except LaunchError as error:
            self.notice(str(error))
        finally:
            # Whatever interrupts the wait, a second Ctrl-C for one: nothing is left running.
            for starter in self._starters:
                starter.close()
            self._watcher.close()
            if self.record is not None:
                self.record.unlink(missing_ok=True)

    def _note_addresses(self, listeners: Mapping[str, socket.socket], head: socket.socket | None) -> None:
        servers = {
            name: server.model_copy(update={"port": listeners[name].getsockname()[1]})
            for name, server in self.run.servers.items()
        }
        head_port = head.getsockname()[1] if head else self.run.head.port
        head_config = self.run.head.model_copy(update={"port": head_port})
        raw = {**self.run.raw, "head_server": {"host": head_config.host, "port": head_port}}
        for server in servers.values():
            settings = {
                **raw[server.name][server.type][server.implementation],
                "host": server.host,
                "port": server.port,
            }
            raw[server.name] = {server.type: {server.implementation: settings}}
        self.run = self.run.model_copy(update={"servers": servers, "head": head_config, "raw": raw})

    def _start_process(
        self, name: str, listener: socket.socket, settings: ProcessSettings | HeadSettings, starter: Starter
    ) -> int:
        settings_read, settings_write = os.pipe()
        log_read, log_write = os.pipe()
        report_read, report_write = os.pipe()
        process = ServerProcess(starter, name=name, log_fd=log_read, report_fd=report_read)
        try:
            order = ProcessOrder(listener.fileno(), settings_read, report_write, log_write)
            process.pid = starter.start(order)
        except BaseException:
            for descriptor in (settings_write, log_read, report_read):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (settings_read, log_write, report_write):
                os.close(descriptor)
        self._processes.append(process)
        self._watcher.add(process)
        # A child that died already shows in its report; its settings need not arrive.
        with contextlib.suppress(BrokenPipeError), os.fdopen(settings_write, "wb") as pipe:
            pipe.write(settings.model_dump_json(fallback=str).encode())
        return process.pid

    def _next_change(self, timeout_s: float) -> ServerProcess | None:
        try:
            return self._watcher.changes.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _alive(self) -> list[ServerProcess]:
        return [process for process in self._processes if not process.has_ended]

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._alive():
            process.starter.signal(process.pid, number)

    def _failure(self, process: ServerProcess) -> LaunchError:
        """Why this process ended, in its own words or by the last of its log."""
        if process.failure is not None:
            return LaunchError(process.failure)
        how = self._how_it_ended(process)
        self._settle_log(process)
        when = ", so the others are stopped too" if process.is_ready else " before it was ready"
        return LaunchError(f"server '{process.name}' {how}{when}.{self._tails([process])}")

    def _how_it_ended(self, process: ServerProcess) -> str:
        deadline = time.monotonic() + 1.0
        while (code := process.starter.exit_code(process.pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _settle_log(self, process: ServerProcess) -> None:
        # The report closes with the process; the last lines of its log may still be on their way. A process that
        # the server started may hold the log open for longer.
        deadline = time.monotonic() + LOG_PATIENCE_S
        while not process.log_has_ended and time.monotonic() < deadline:
            time.sleep(0.01)

    @staticmethod
    def _tails(processes: Sequence[ServerProcess]) -> str:
        tails = [
            f"\nThe last lines of {process.name}'s log:\n" + "\n".join(f"    {line}" for line in tail)
            for process in processes
            # Copied at once: a process that still runs may write its next line meanwhile.
            if (tail := list(process.tail))
        ]
        return "".join(tails)


def _worker_names(server: ServerConfig) -> list[str]:
    workers = server.num_workers or 1
    return [server.name] + [f"{server.name}#{number}" for number in range(2, workers + 1)]


def _head_settings(run: RunConfig, instances: list[ServerInstance]) -> HeadSettings:
    exposes = run.head.expose_secrets and is_loopback(run.head.host)
    return HeadSettings(
        host=run.head.host,
        port=run.head.port,
        instances=instances,
        config_yaml=raw_yaml(run) if exposes else masked_yaml(run),
    )


def _expect_answer(name: str, host: str, port: int) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=10.0)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        raise LaunchError(
            f"server '{name}' says that it is ready, but http://{host}:{port}/ does not answer ({error})"
        ) from error
    finally:
        connection.close()
