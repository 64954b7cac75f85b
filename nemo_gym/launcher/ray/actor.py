"""The actor that runs one process of a server on a node of a Ray cluster, with the ordinary launcher."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.models import RunConfig
from nemo_gym.config.process import ServerInstance
from nemo_gym.errors import ConfigError, LaunchError
from nemo_gym.launcher.local import launch
from nemo_gym.launcher.membership import LeftRunError, host_towards
from nemo_gym.launcher.ray.code import UnpackedCode
from nemo_gym.paths import EXTRA_ROOTS_ENV_VAR
from nemo_gym.version import __version__

MOST_LINES = 10_000
"""Maximum number of log lines that are kept until the driver has fetched them."""
GATHER_S = 0.05
"""Seconds to wait for further lines before a report, so that a busy log does not cost a call per line."""
LOOK_AGAIN_S = 0.5
STOP_PATIENCE_S = 5.0


@dataclass(frozen=True)
class ActorOrder:
    """The settings with which an actor starts its server."""

    run: RunConfig
    """The run's configuration, with only the server to start, and with the head server to join."""
    environment: Mapping[str, str] = field(repr=False)
    """The driver's environment variables that may contain secrets and that the server may read."""
    roots: tuple[Path, ...]
    """The paths of the packed folders on the driver; empty if no folder is packed."""
    ready_timeout_s: float
    restart_limit: int
    auto_install: bool


class Place(NamedTuple):
    """The node of an actor. `life` identifies the start of the actor, so it changes with each restart."""

    address: str
    life: str


class Report(NamedTuple):
    """Changes since an actor's last report."""

    life: str
    lines: list[str]
    dropped: int
    """The number of earlier lines that were dropped, because too many were waiting."""
    notices: list[str]
    """Messages of the launcher for the user."""
    instance: ServerInstance | None
    """The server's entry for the list of servers; None until the server is ready."""
    failure: str | None
    """The reason why the server failed for good, which ends the run; None if it has not failed."""


class ServerActor:
    """One process of a server. `report` waits for changes and `stop` for the server's end, for a limited time."""

    def __init__(self, version: str, order: bytes, packed: bytes | None) -> None:
        if version != __version__:
            raise LaunchError(
                f"nemo_gym {__version__} is installed on {socket.gethostname()}, but the run was started with "
                f"{version}. Install the same version on all nodes."
            )
        run_order: ActorOrder = pickle.loads(order)
        self._place = Place(host_towards(run_order.run.head), uuid.uuid4().hex[:8])
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._dropped = 0
        self._notices: list[str] = []
        self._instance: ServerInstance | None = None
        self._failure: str | None = None
        self._has_news = False
        self._news = threading.Condition()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(run_order, packed), name="server", daemon=True)
        self._thread.start()

    def place(self) -> Place:
        return self._place

    def report(self, wait_s: float) -> Report:
        """Wait for changes, for at most `wait_s`, and return those since the last report."""
        with self._news:
            self._news.wait_for(lambda: self._has_news, wait_s)
        time.sleep(GATHER_S)
        with self._news:
            self._has_news = self._failure is not None
            lines, self._lines = list(self._lines), deque(maxlen=MOST_LINES)
            dropped, self._dropped = self._dropped, 0
            notices, self._notices = self._notices, []
            return Report(self._place.life, lines, dropped, notices, self._instance, self._failure)

    def stop(self) -> None:
        """Ask the launcher to stop the server. Wait up to `STOP_PATIENCE_S` seconds until it has stopped."""
        self._is_stopping.set()
        self._thread.join(STOP_PATIENCE_S)

    def _serve(self, order: ActorOrder, packed: bytes | None) -> None:
        try:
            self._run(order, packed)
        except LeftRunError:
            # End the process. If only the network was cut and the driver still runs, Ray starts this actor again.
            os._exit(1)
        except (LaunchError, ConfigError) as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - the driver shows it; this thread has no caller
            self._fail(f"{type(error).__name__}: {error}")

    def _run(self, order: ActorOrder, packed: bytes | None) -> None:
        os.environ.update({name: value for name, value in order.environment.items() if name not in os.environ})
        run = order.run if packed is None else _with_code(order.run, UnpackedCode(packed, order.roots))
        with launch(
            run,
            on_line=self._take_line,
            notice=self._take_notice,
            ready_timeout_s=order.ready_timeout_s,
            restart_limit=order.restart_limit,
            auto_install=order.auto_install,
        ) as servers:
            while not self._is_stopping.is_set():
                self._note(next(each.reached_at(self._place.address) for each in servers.instances))
                servers.watch(LOOK_AGAIN_S)

    def _take_line(self, server: str, line: str) -> None:
        with self._reporting():
            self._dropped += len(self._lines) == MOST_LINES
            self._lines.append(line)

    def _take_notice(self, text: str) -> None:
        with self._reporting():
            self._notices.append(text)

    def _note(self, instance: ServerInstance) -> None:
        if instance != self._instance:
            with self._reporting():
                self._instance = instance

    def _fail(self, reason: str) -> None:
        with self._reporting():
            self._failure = reason

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Wake a waiting `report` after the block, so that `report` returns the changes made in the block."""
        with self._news:
            yield
            self._has_news = True
            self._news.notify_all()


def _with_code(run: RunConfig, code: UnpackedCode) -> RunConfig:
    """Make this process use the folders unpacked on this node, and return the run with the servers' folders there."""
    os.chdir(code.roots[0])
    os.environ[EXTRA_ROOTS_ENV_VAR] = os.pathsep.join(map(str, code.roots))
    servers = {name: each.model_copy(update={"folder": code.moved(each.folder)}) for name, each in run.servers.items()}
    return run.model_copy(update={"servers": servers})
