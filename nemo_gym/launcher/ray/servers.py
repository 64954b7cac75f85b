"""The launcher for a Ray cluster: the head server here, and one actor per server process on the nodes."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.models import HeadConfig, RunConfig, ServerConfig
from nemo_gym.config.process import ServerInstance
from nemo_gym.config.secret_values import handed_environment
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.base import Starter
from nemo_gym.launcher.local import Notice, RunningServers, default_starter, longest_start_s
from nemo_gym.launcher.ray.actor import ActorOrder, ServerActor
from nemo_gym.launcher.ray.cluster import Cluster
from nemo_gym.launcher.ray.code import Code
from nemo_gym.launcher.ray.options import options_of, processes_of
from nemo_gym.launcher.ray.replicas import THREADS, Replica, Replicas
from nemo_gym.launcher.restarts import RestartPolicy
from nemo_gym.launcher.watch import LineSink, log_name
from nemo_gym.version import __version__

logger = logging.getLogger(__name__)


class NodeLogs:
    """A receiver of log lines. It writes them to one file per process and passes them on to `on_line`."""

    def __init__(self, on_line: LineSink | None, folder: Path | None) -> None:
        self.on_line = on_line
        self.folder = folder
        self._files: dict[str, BinaryIO | None] = {}

    def take(self, name: str, address: str, line: str) -> None:
        """Write one log line of a process to its file, and pass it on with the address of the process's node."""
        if self.folder is not None:
            self._write(name, line.encode() + b"\n")
        if self.on_line is not None:
            self.on_line(f"{name} {address}", line)

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()

    def _write(self, name: str, line: bytes) -> None:
        assert self.folder is not None
        path = self.folder / log_name(name)
        try:
            if name not in self._files:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._files[name] = path.open("ab", buffering=0)
            if file := self._files[name]:
                file.write(line)
        except OSError as error:
            # Continue without this file, because a log that cannot be written must not stop the servers.
            logger.warning("%s can no longer be written to (%s)", path, error)
            self._files[name] = None


def launch_on_ray(
    run: RunConfig,
    *,
    starter: Starter | None,
    on_line: LineSink | None,
    notice: Notice,
    log_dir: Path | None,
    ready_timeout_s: float,
    restart_limit: int,
    auto_install: bool,
) -> RunningServers:
    """Start every server of a run as actors of a Ray cluster, and return once all of them answer.

    The cluster's address is `ray_head_node_address`, or else the environment variable `RAY_ADDRESS`. If neither is
    set, start a cluster on this machine. A server whose node dies is started again on another node. Raise
    `LaunchError` in the same cases as `launch`.
    """
    if run.only is not None or run.joins:
        raise LaunchError(
            "The settings only and join are for machines without a cluster. With launcher: ray, Ray distributes the "
            "servers. Remove both settings. To choose the node of a server, set ray: {node: …} in its block."
        )
    ready_timeout_s = longest_start_s(run, ready_timeout_s)
    cluster = Cluster(run)
    try:
        running = ServersOnRay(run, cluster, starter or default_starter(run), NodeLogs(on_line, log_dir), notice)
    except BaseException:
        cluster.leave()
        raise
    try:
        running.start(ready_timeout_s=ready_timeout_s)
        running.wait_until_ready(ready_timeout_s)
        running.keep_up(RestartPolicy(restart_limit, ready_timeout_s))
        # Record the run before the actors start. Otherwise, an actor on this machine would record it instead.
        running.record()
        running.start_actors(ready_timeout_s, restart_limit, auto_install=auto_install)
    except BaseException:
        running.stop()
        raise
    return running


class ServersOnRay(RunningServers):
    """The servers of a run on a Ray cluster. On this machine, only the head server is started."""

    def __init__(
        self,
        run: RunConfig,
        cluster: Cluster,
        starter: Starter,
        logs: NodeLogs,
        notice: Notice,
    ) -> None:
        super().__init__(_with_head_alone(run, cluster), starter, logs.on_line, notice, logs.folder)
        self._cluster = cluster
        self._logs = logs
        self._replicas: Replicas | None = None

    @property
    def instances(self) -> Sequence[ServerInstance]:
        """One entry per server process, as in the head server's list."""
        replicas = self._replicas.replicas if self._replicas else ()
        return [each.instance for each in replicas if each.instance]

    def start_actors(self, ready_timeout_s: float, restart_limit: int, *, auto_install: bool) -> None:
        """Create the actors and wait until all their servers answer."""
        import ray

        code = Code.of(self.run)
        packed = None if code is None else ray.put(code.packed)
        replicas = list[Replica]()
        for server in self.run.servers.values():
            order = ActorOrder(
                run=self._run_of(server),
                environment=handed_environment(
                    {**self.run.plain, server.name: server.settings},
                    [other.settings for other in self.run.servers.values() if other.name != server.name],
                ),
                roots=code.roots if code else (),
                ready_timeout_s=ready_timeout_s,
                restart_limit=restart_limit,
                auto_install=auto_install,
            )
            number = processes_of(self.run, server)
            for index, options in enumerate(options_of(server, number)):
                kind = ray.remote(ServerActor).options(max_restarts=-1, max_concurrency=THREADS, name=None, **options)
                actor = kind.remote(__version__, pickle.dumps(order), packed)
                name = f"{server.name}#{index + 1}" if index else server.name
                replicas.append(Replica(name, server.name, server.ray, actor, time.monotonic()))
        self._replicas = Replicas(
            replicas,
            on_line=self._logs.take,
            notice=self.notice,
            ready_timeout_s=ready_timeout_s,
            restart_limit=restart_limit,
        )
        self._replicas.wait_until_ready()

    def watch(self, timeout_s: float) -> None:
        """Wait for `timeout_s`. Raise `LaunchError` if a server or the head node of Ray is lost for good."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._replicas is not None and self._replicas.failure is not None:
                raise self._replicas.failure
            self._cluster.check_head()
            left_s = deadline - time.monotonic()
            super().watch(max(0.0, min(left_s, 0.5)))
            if left_s <= 0.5:
                return

    def stop(self) -> None:
        """End every server, then the head server, and leave the cluster."""
        if self._is_stopped:
            return
        try:
            if self._replicas is not None:
                self._replicas.close(calls_ray=not self._cluster.is_lost)
        finally:
            try:
                super().stop()
            finally:
                self._logs.close()
                self._cluster.leave()

    def _run_of(self, server: ServerConfig) -> RunConfig:
        """Return the run's configuration for the actor of one server. Leave out the other servers' settings."""
        head = self.run.head
        own = server.model_copy(
            update={
                "num_workers": 1,
                # Ignore a host that is set for all servers, because it is an address of this machine.
                "host": server.host if "host" in server.origins else self._cluster.all_addresses,
                "advertised_host": server.advertised_host if "advertised_host" in server.origins else "",
            }
        )
        others = {
            name: each.model_copy(update={"settings": {}, "origins": {}, "datasets": ()})
            for name, each in self.run.servers.items()
        }
        known = {"run_token": self.run.run_token, "ray_head_node_address": self._cluster.address, "replicas": 1}
        changes = {
            "servers": {**others, server.name: own},
            "head": HeadConfig(
                host=head.advertised_host or head.host, port=head.port, port_is_fixed=True, tls=self.run.tls
            ),
            "settings": self.run.settings.model_copy(update=known),
            "plain": {**self.run.plain, **known},
            "raw": {name: self.run.raw[name] for name in self.run.raw if name == server.name},
            "only": frozenset({server.name}),
            "joins": True,
            "shortcuts": {},
            "member": "",
        }  # fmt: skip
        return self.run.model_copy(update=changes)


def _with_head_alone(run: RunConfig, cluster: Cluster) -> RunConfig:
    """Return the configuration for this machine: only the head server, at an address that the nodes can reach."""
    head = run.head
    if not is_loopback(cluster.node_ip):
        host = cluster.all_addresses if is_loopback(head.host) else head.host
        head = head.model_copy(update={"host": host, "advertised_host": head.advertised_host or cluster.node_ip})
    return run.model_copy(update={"only": frozenset(), "head": head})
