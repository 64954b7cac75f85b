"""The launcher for this machine: it starts the servers of a run, waits for them and stops them."""

from __future__ import annotations

import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from shutil import get_terminal_size
from typing import Self

from nemo_gym.calls.running import RunRecord, add_run, remove_run, run_at
from nemo_gym.config.access import reachable_hosts, token_of_run
from nemo_gym.config.certificates import check_can_serve
from nemo_gym.config.checks import check_variables
from nemo_gym.config.endpoints import model_endpoints
from nemo_gym.config.hosts import is_loopback, this_machine
from nemo_gym.config.masking import masked_yaml, raw_yaml
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.process import HeadSettings, OtherServer, ProcessSettings, ServerInstance
from nemo_gym.config.sandbox_networks import networked_sandbox
from nemo_gym.config.secret_values import secrets_of
from nemo_gym.config.shared_run import SharedRun
from nemo_gym.config.tls import Tls
from nemo_gym.errors import ConfigError, LaunchError, ServerCallError
from nemo_gym.http.blocking import ask
from nemo_gym.launcher.base import ServerProcess, Starter
from nemo_gym.launcher.endings import failure_of, how_it_ended, tails
from nemo_gym.launcher.environments import interpreters
from nemo_gym.launcher.membership import JoinedRun, Membership, cookie_secret_of, needs_one_process
from nemo_gym.launcher.places import Place
from nemo_gym.launcher.restarts import DEFAULT_LIMIT, Keeper, RestartPolicy
from nemo_gym.launcher.sockets import HEAD, Doors, PrivateSockets, bind_head, listen, listen_too
from nemo_gym.launcher.spawn import SpawnStarter
from nemo_gym.launcher.warm import WarmStarter, is_supported
from nemo_gym.launcher.watch import LineSink, Watcher, log_name

READY_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 10.0
REMINDER_S = 5.0
STOP_PATIENCE_S = 1.2
DRY_RUN_PATIENCE_S = 10.0
PIPED_WIDTH, LEAST_WIDTH = 200, 40
"""The width of a line that no terminal shows, and the number of characters of progress that any terminal shows."""

Notice = Callable[[str], None]


def launch(
    run: RunConfig,
    *,
    starter: Starter | None = None,
    on_line: LineSink | None = None,
    notice: Notice | None = None,
    log_dir: Path | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
    restart_limit: int = DEFAULT_LIMIT,
    auto_install: bool = False,
    dry_run: bool = False,
) -> RunningServers:
    """Start every server of a run and the head server, and return once all of them answer.

    `on_line` receives the servers' logs. `notice` receives messages of the launcher, such as unmet requirements. With
    `dry_run`, each server is built from its settings and ends at once. `isolated` servers get their own environments;
    with `auto_install`, so do servers with unmet requirements.
    If a server does not start, stop the others and raise `LaunchError`.
    A server that dies later is restarted, at most `restart_limit` times within ten minutes.
    """
    check_can_serve(run)
    check_variables(run.servers_here.values())
    ready_timeout_s = longest_start_s(run, ready_timeout_s)
    note = notice or (lambda text: None)
    pythons = interpreters(run, auto_install=auto_install, notice=note)
    running = RunningServers(run, starter or default_starter(run), on_line, note, log_dir)
    try:
        running.start(pythons, ready_timeout_s=ready_timeout_s, dry_run=dry_run)
        running.wait_until_ready(ready_timeout_s, dry_run=dry_run)
        if not dry_run:
            running.keep_up(RestartPolicy(restart_limit, ready_timeout_s))
            running.join()
            running.record()
    except BaseException:
        running.stop()
        raise
    return running


def default_starter(run: RunConfig) -> Starter:
    """Return a starter that forks if that is safe, unless `process_start_method` is `spawn`."""
    if is_supported() and run.settings.process_start_method == "fork":
        return WarmStarter()
    return SpawnStarter()


class RunningServers:
    """The servers of a run; `run` has their actual addresses."""

    def __init__(
        self, run: RunConfig, starter: Starter, on_line: LineSink | None, notice: Notice, log_dir: Path | None
    ) -> None:
        self.run = run
        self.starter = starter
        self._starters = [starter]
        self.notice = notice
        self._record: RunRecord | None = None
        self._log_dir = log_dir
        self._watcher = Watcher(on_line, log_dir)
        self._doors: dict[str, Doors] = {}
        self._private = PrivateSockets()
        self._places: list[Place] = []
        self._keeper: Keeper | None = None
        self._membership: Membership | None = None
        self._instances: dict[str, ServerInstance] = {}
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def instances(self) -> Sequence[ServerInstance]:
        """One entry per server, as in the head server's list."""
        return list(self._instances.values())

    def start(
        self,
        pythons: Mapping[str, Path] | None = None,
        *,
        ready_timeout_s: float = READY_TIMEOUT_S,
        dry_run: bool = False,
    ) -> None:
        """Start the servers. Bind every socket first, so that all addresses are known when they start.

        `pythons` has the interpreters of the servers with their own environments.
        """
        own = {name: SpawnStarter(str(python)) for name, python in (pythons or {}).items()}
        self._starters += own.values()
        for server in self.run.servers_here.values():
            self._doors[server.name] = self._open_doors(server)
        if not dry_run and not self.run.joins:
            head = bind_head(self.run.head, self.notice, self.run.written_address(None))
            self._doors[HEAD] = Doors([head], [])
        self._note_addresses(None if dry_run else JoinedRun.of(self.run, self.notice) if self.run.joins else None)
        if not dry_run and self.run.settings.is_open and (hosts := reachable_hosts(self.run)):
            self.notice(f"run_token is false: everyone who can reach {', '.join(hosts)} can call this run's servers.")
        if (setting := networked_sandbox(self.run.plain)) and not dry_run:
            self.notice(f"{setting}: programs in sandboxes can reach the servers, so all calls require the run token.")
        secret = cookie_secret_of(self.run)
        self._watcher.secrets = secrets_of(self.run)
        for name in self.run.servers_here:
            starter = own.get(name, self.starter)
            # Start one process in a dry run, because one is enough to check that a server can be built.
            for number in range(1 if dry_run else self._processes_of(name)):
                self._start_one(
                    name, number, starter, cookie_secret=secret, dry_run=dry_run, ready_timeout_s=ready_timeout_s
                )
        for server in self.run.servers_here.values():
            self._instances[server.name] = self._instance_of(server)
        if HEAD in self._doors:
            self._fill(Place(HEAD, None, self.starter, self._doors[HEAD].public, self._head_settings))

    def wait_until_ready(self, timeout_s: float, *, dry_run: bool = False) -> None:
        """Wait until every process reports that it is ready and every server answers a request."""
        if not dry_run:
            # Import it while the servers start, because `_expect_answers` needs it.
            import httpx  # noqa: F401
        now = started_at = time.monotonic()
        remind_at = started_at + REMINDER_S
        failed: list[ServerProcess] = []
        while waiting := [each for each in self._processes if not each.is_ready and each not in failed]:
            names = ", ".join(each.name for each in waiting)
            # A class may define the time that its start may take. The process reports it once it has read the class.
            timeout_s = max([timeout_s, *(each.start_timeout_s for each in waiting)])
            # In a dry run, wait longer: at the timeout, each process ends itself and reports where it hangs.
            deadline = started_at + timeout_s + (DRY_RUN_PATIENCE_S if dry_run else 0)
            if now >= deadline:
                raise LaunchError(
                    f"servers are not ready after {timeout_s:g} s: {names}. "
                    f"--ready-timeout-s … gives servers longer to start.{tails(waiting)}"
                )
            if now >= remind_at:
                remind_at = now + REMINDER_S
                waited = f"waiting for {names} ({now - started_at:.0f} of {timeout_s:g} s)"
                self.notice(waited + _progress(waiting, get_terminal_size((PIPED_WIDTH, 0)).columns - len(waited)))
            process = self._watcher.next_change(min(deadline, remind_at) - now)
            if process is not None and process.has_ended and not dry_run:
                raise _failure_at_start(process)
            if process is not None and process.has_ended and not process.is_ready:
                # Continue, because a dry run reports the mistakes of all servers.
                failed.append(process)
            now = time.monotonic()
        if failed:
            raise LaunchError("\n".join(str(_failure_at_start(each)) for each in self._processes if each in failed))
        if not dry_run:
            _expect_answers(list(self.run.servers_here.values()), self.run.tls)

    def record(self) -> None:
        """Record the run, so that other commands on this machine find it, even if this machine has joined the run."""
        if not self.run.joins or run_at(self.run.head.host, self.run.head.port) is None:
            self._record = RunRecord.of(self.run)
            add_run(self._record)

    def join(self) -> None:
        """Register the servers at the head server of a joined run, and keep reporting them to it."""
        if self.run.joins:
            self._membership = Membership(self.run, lambda: self.instances, self.notice)

    def keep_up(self, policy: RestartPolicy) -> None:
        """Restart servers that die, as long as the policy allows it."""
        self._keeper = Keeper(self._places, self._watcher, policy, notice=self.notice, on_restart=self._note_restart)

    def watch(self, timeout_s: float) -> None:
        """Wait for `timeout_s`. Raise `LaunchError` if a server will not be restarted, or if the joined run ended."""
        assert self._keeper is not None, "call keep_up first"
        if self._membership is not None and self._membership.failure is not None:
            raise self._membership.failure
        self._keeper.wait(timeout_s)

    def stop(self) -> None:
        """End every process with SIGTERM. After `STOP_PATIENCE_S`, end the remaining ones with SIGKILL."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._record is not None:
            # Remove the run's record before the servers end, so that a collection knows why its rollouts are lost.
            remove_run(self._record)
        if self._membership is not None:
            self._membership.close()
        try:
            if self._keeper is not None:
                self._keeper.close()
            for doors in self._doors.values():
                # Close the launcher's copies of the sockets. Otherwise callers of an ended server would keep waiting.
                doors.close()
            self._signal_all(signal.SIGTERM)
            deadline = time.monotonic() + STOP_PATIENCE_S
            while self._alive() and time.monotonic() < deadline:
                self._watcher.next_change(max(0.0, deadline - time.monotonic()))
            self._signal_all(signal.SIGKILL)
        except LaunchError as error:
            if self._keeper is None or str(error) != str(self._keeper.failure):
                self.notice(str(error))
        finally:
            # Kill the remaining processes, even if the wait is interrupted, for example by a second Ctrl-C.
            for starter in self._starters:
                starter.close()
            for place in self._places:
                place.close()
            self._watcher.close()
            self._private.close()

    @property
    def _processes(self) -> list[ServerProcess]:
        return [place.process for place in self._places]

    def _processes_of(self, name: str) -> int:
        return self.run.servers[name].num_workers or self.run.settings.processes

    def _open_doors(self, server: ServerConfig) -> Doors:
        """Open a server's sockets. Several processes share one address, and each also gets a private socket."""
        number = self._processes_of(server.name)
        written = self.run.written_address(server)
        first = listen(
            server.host, server.port, server.name, self.run.settings.port_range, written=written, is_shared=number > 1
        )
        others = [listen_too(first) for _ in range(number - 1)]
        if others:
            return Doors([first, *others], [self._private.listen() for _ in range(number)])
        return Doors([first], [], self._shortcut())

    def _shortcut(self) -> socket.socket | None:
        # Ignore a failure, because callers can use the port instead. The unix socket only makes calls cheaper.
        with suppress(OSError):
            return self._private.listen()
        return None

    def _start_one(
        self,
        name: str,
        number: int,
        starter: Starter,
        *,
        cookie_secret: str,
        dry_run: bool,
        ready_timeout_s: float,
    ) -> None:
        doors = self._doors[name]
        process_name = f"{name}#{number + 1}" if number else name
        settings = ProcessSettings.of(
            self.run,
            self.run.servers[name],
            cookie_secret=cookie_secret,
            num_workers=self._processes_of(name),
            number=number,
            sockets=doors.private_paths,
            log_file=str(self._log_dir / log_name(process_name)) if self._log_dir else "",
            dry_run=dry_run,
            ready_timeout_s=ready_timeout_s,
        )
        self._fill(Place(process_name, name, starter, doors.of_process(number), settings))

    def _fill(self, place: Place) -> None:
        place.fill(self._watcher)
        self._places.append(place)

    def _instance_of(self, server: ServerConfig) -> ServerInstance:
        places = [place for place in self._places if place.server == server.name]
        return ServerInstance.of(
            server,
            pids=[place.process.pid for place in places],
            sockets=self._doors[server.name].private_paths,
            started_at=time.time(),
            machine=socket.gethostname() if self.run.member else "",
            member=self.run.member,
            shortcut=self._shared_shortcut(server.name),
            needs_one_process=needs_one_process(server),
        )

    def _shared_shortcut(self, name: str) -> str:
        """Return a server's unix socket for the other parts of the run on this machine; empty if there is none."""
        shortcut, machine = self._doors[name].shortcut, this_machine()
        return f"{machine}:{shortcut.getsockname()}" if self.run.member and shortcut and machine else ""

    def _note_restart(self, place: Place) -> None:
        if place.server is None:
            return
        known = self._instances[place.server]
        pids = [each.process.pid for each in self._places if each.server == place.server]
        is_first = place.name == place.server
        changed = {"pid": pids[0], "start_time": time.time()} if is_first else {}
        instance = known.model_copy(update={**changed, "pids": pids, "restarts": known.restarts + 1})
        self._instances[place.server] = instance
        for head in (each for each in self._places if each.server is None):
            head.send(instance)

    def _head_settings(self) -> HeadSettings:
        head = self.run.head
        exposes = head.expose_secrets and is_loopback(head.host)
        awaits = self.run.plain.get("model_endpoint_readiness_timeout_seconds") != 0
        return HeadSettings(
            host=head.host,
            port=head.port,
            instances=list(self._instances.values()),
            expected=self._expected() if self.run.member else {},
            run_id=self.run.run_id,
            config_yaml=raw_yaml(self.run) if exposes else masked_yaml(self.run),
            shared=SharedRun.of(self.run),
            endpoints=list(model_endpoints(self.run)) if awaits else [],
            run_token=self.run.run_token,
            allowed_hosts=frozenset(self.run.settings.allowed_hosts),
            tls=self.run.tls,
        )

    def _expected(self) -> dict[str, OtherServer]:
        return {
            name: OtherServer(server.type, server.implementation, server.host, server.port)
            for name, server in self.run.servers.items()
        }

    def _note_addresses(self, joined: JoinedRun | None) -> None:
        servers = {
            name: server.model_copy(update={"port": self._doors[name].port if name in self._doors else 0})
            for name, server in self.run.servers.items()
        }
        head_port = self._doors[HEAD].port if HEAD in self._doors else self.run.head.port
        head_config = self.run.head.model_copy(update={"port": head_port})
        run_id = joined.run_id if joined else secrets.token_hex(8)
        member = secrets.token_hex(4) if self.run.spans_machines else ""
        shortcuts = {
            name: str(listener.getsockname())
            for name, server in self.run.by_any_name()
            if server.name in self._doors and (listener := self._doors[server.name].shortcut) is not None
        }
        head_block = {"host": head_config.host, "port": head_port}
        raw = {**self.run.raw, "head_server": head_block, "_ng_run_id": run_id}
        if member:
            raw["_ng_member"] = member
        for server in (each for each in servers.values() if each.name in self._doors):
            written = raw[server.name][server.type][server.implementation]
            settings = {**written, "host": server.host, "port": server.port}
            raw[server.name] = {server.type: {server.implementation: settings}}
        known = {
            "servers": servers, "head": head_config, "raw": raw, "run_id": run_id, "shortcuts": shortcuts,
            "run_token": joined.run_token if joined else token_of_run(self.run), "member": member,
        }  # fmt: skip
        self.run = self.run.model_copy(update=known)

    def _alive(self) -> list[ServerProcess]:
        return [process for process in self._processes if not process.has_ended]

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._alive():
            process.starter.signal(process.pid, number)


def _failure_at_start(process: ServerProcess) -> LaunchError:
    """Return the error for a server that ended at start. It contains the server's message or its last log lines."""
    if reason := process.failure or process.start_failure:
        return LaunchError(reason)
    when = ", so the others are stopped too" if process.is_ready else " before it was ready"
    return failure_of(process, how_it_ended(process), when)


def _expect_answers(servers: Sequence[ServerConfig], tls: Tls | None) -> None:
    for server in servers:
        try:
            ask("GET", server.url, timeout_s=ANSWER_TIMEOUT_S, tls=tls, reads_body=False)
        except ServerCallError as error:
            raise LaunchError(
                f"server '{server.name}' reports that it is ready, but {server.url}/ does not answer ({error}). Its "
                "log may show why."
            ) from error


def longest_start_s(run: RunConfig, usual_s: float) -> float:
    """Return the start timeout in seconds: `usual_s`, or a server's `start_timeout_s` if that is longer.

    Raise `ConfigError` for a `start_timeout_s` that is not a finite number.
    """
    return max([usual_s, *map(_start_timeout_s, run.servers_here.values())])


def _start_timeout_s(server: ServerConfig) -> float:
    given = server.settings.get("start_timeout_s") or 0
    with suppress(TypeError, ValueError):
        if isfinite(seconds := float(given)):
            return seconds
    place = server.origins.get("start_timeout_s")
    raise ConfigError(
        f"{f'{place}: ' if place else ''}{server.name}: start_timeout_s is {given!r}, but must be a number of "
        "seconds, such as 600."
    )


def _progress(waiting: Iterable[ServerProcess], width: int) -> str:
    """Return `: ` and the progress of a server that loads a model, cut to `width` characters; empty if none does.

    A server that does not report progress, but needs longer than usual, is represented by its last log line.
    """
    lines = [
        each.progress or each.tail[-1] for each in waiting if each.progress or (each.start_timeout_s and each.tail)
    ]
    return f": {lines[0]}"[: max(width, LEAST_WIDTH)] if lines else ""
