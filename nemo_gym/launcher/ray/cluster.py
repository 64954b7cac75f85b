"""The connection to a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import math
import os
import signal
import socket
import threading
import time
from typing import Any

from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.models import RunConfig
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.ray.options import processes_of

ADDRESS_ENV_VAR = "RAY_ADDRESS"
LOOPBACK = "127.0.0.1"
ANSWER_S = 10.0
"""Seconds within which the head node must accept a connection. Ray itself would keep trying for two minutes."""
RETRY_S = 0.5
CHECK_EVERY_S = 2.0
LEAVE_S = 5.0
"""Seconds in which a process may leave a cluster whose head node is lost."""
RECONNECT_ENV_VAR, RECONNECT_S = "RAY_gcs_rpc_server_reconnect_timeout_s", 60.0
"""The setting of Ray, and its default, after which Ray's own code ends a process that cannot reach the head node."""
PATIENCE_SHARE = 2 / 3
"""The share of that time after which the run ends by itself, to leave time for its record."""


class Cluster:
    """This process's connection to a Ray cluster: an existing one, or one that this process starts."""

    def __init__(self, run: RunConfig) -> None:
        """Connect this process, unless it is connected already. Raise `LaunchError` if the connection fails."""
        ray = imported_ray()
        address = str(run.settings.ray_head_node_address or os.environ.get(ADDRESS_ENV_VAR) or "")
        if address.startswith("ray://"):
            raise LaunchError(
                f"{address} is an address for Ray Client, which connects from outside the cluster. Start this command "
                "on a node of the cluster (for example with ray job submit) and use HOST:6379."
            )
        self.is_lost = False
        """Whether the head node is dead, so that calls of Ray would only wait."""
        self._check_at = 0.0
        self._silent_since: float | None = None
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            self._connect(address, run)
        context = ray.get_runtime_context()
        self.address = str(context.gcs_address)
        """The address of the cluster's control service."""
        self.node_ip = LOOPBACK if self._is_ours and not address else _node_ip(context.get_node_id())
        """The address of this machine in the cluster; loopback if the cluster consists of this machine only."""

    @property
    def all_addresses(self) -> str:
        """The host on which a server must listen so that all nodes reach it."""
        if is_loopback(self.node_ip):
            return self.node_ip
        return "::" if ":" in self.node_ip else "0.0.0.0"

    def check_head(self) -> None:
        """Raise `LaunchError` if the head node has not answered for too long. Ray itself would end this process."""
        now = time.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + CHECK_EVERY_S
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CHECK_EVERY_S).close()
        except OSError as error:
            self._silent_since = self._silent_since or now
            silent_s = time.monotonic() - self._silent_since
            if silent_s > PATIENCE_SHARE * float(os.environ.get(RECONNECT_ENV_VAR) or RECONNECT_S):
                self.is_lost = True
                raise LaunchError(
                    f"Ray's head node at {self.address} has not answered for {silent_s:.0f} s ({error}), so the run "
                    "ends. Start Ray again, and continue a collection with --resume."
                ) from error
        else:
            self._silent_since = None

    def leave(self) -> None:
        """Disconnect. All actors of this process end, and so does a cluster that this process has started."""
        if self.is_lost:
            # Wait only briefly, because Ray waits for its head node. The other nodes end without it.
            leaving = threading.Thread(target=imported_ray().shutdown, name="leaving Ray", daemon=True)
            leaving.start()
            leaving.join(LEAVE_S)
        elif self._is_ours:
            imported_ray().shutdown()

    def _connect(self, address: str, run: RunConfig) -> None:
        options: dict[str, Any] = {"address": address}
        if not address:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            wanted = sum(each.ray.num_cpus * processes_of(run, each) for each in run.servers.values())
            # Offer as many CPUs as the servers request, even if this machine has fewer: processes can share a CPU.
            cpus = max(math.ceil(wanted), os.cpu_count() or 1)
            options = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        else:
            _check_that_it_answers(address)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            imported_ray().init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except Exception as error:
            # Ray raises a plain Exception if its processes take too long to start, as on an overloaded machine.
            raise _unreachable(address, error) if address else _not_started(error) from error
        finally:
            # Restore the handlers. Ray replaces the SIGTERM handler, with which nemo_gym's commands shut down cleanly.
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)


def imported_ray() -> Any:
    """Import Ray, which takes half a second. Raise `LaunchError` if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise LaunchError("Ray is not installed here. Install it: pip install 'nemo-gym[ray]'") from error


def _check_that_it_answers(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        # Do not check other forms of addresses, such as `auto`, because only Ray can resolve them.
        return
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise _unreachable(address, error) from error
            time.sleep(RETRY_S)


def _unreachable(address: str, error: Exception) -> LaunchError:
    return LaunchError(
        f"cannot join a Ray cluster at {address}: {error}. Start one with ray start --head, or correct "
        f"ray_head_node_address or the variable {ADDRESS_ENV_VAR}."
    )


def _not_started(error: Exception) -> LaunchError:
    return LaunchError(
        f"Ray did not start on this machine: {str(error).rstrip('.')}. The newest folder of /tmp/ray has its logs. "
        "Try again if the machine was busy."
    )


def free_resources() -> str:
    """List the cluster's free CPUs, GPUs and custom resources, but not those that identify nodes."""
    free = {name: amount for name, amount in imported_ray().available_resources().items() if ":" not in name}
    shown = [f"{free.pop(name, 0):g} {name}" for name in ("CPU", "GPU")]
    shown += [f"{amount:g} {name}" for name, amount in free.items() if name not in ("memory", "object_store_memory")]
    return ", ".join(shown)


def _node_ip(node_id: str) -> str:
    return str(next(node["NodeManagerAddress"] for node in imported_ray().nodes() if node["NodeID"] == node_id))
