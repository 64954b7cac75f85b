"""The resources server of TRL's environments: part of an existing run, or started and supervised by this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.calls.client import ServerClient, get_response_json
from nemo_gym.calls.problems import reply_to
from nemo_gym.config.settings import RESOURCES_TIER
from nemo_gym.config.without_model import graders_of, load_for_grading, only_for
from nemo_gym.contract.environment import own_config
from nemo_gym.errors import EnvironmentFailed, LaunchError, UsageError
from nemo_gym.launcher.local import RunningServers, launch
from nemo_gym.paths import find
from nemo_gym.schemas.shapes import ToolDefinition
from nemo_gym.text import did_you_mean_or_all
from nemo_gym.training.heads import head_at

logger = logging.getLogger(__name__)

WATCH_S = 0.5
NO_SUCH_ROUTE = (404, 405)


class OpenServer:
    """A running resources server, for use until `close`."""

    def __init__(self, name: str, client: ServerClient, started: RunningServers | None = None) -> None:
        """Use a running server. If `started` is given, restart the server when it dies, and stop it in `close`."""
        self.name = name
        self.client = client
        self._started = started
        self._is_closing = threading.Event()
        self._failure: LaunchError | None = None
        self._watching = threading.Thread(target=self._watch, name="nemo_gym servers", daemon=True)
        if started is not None:
            self._watching.start()

    async def listed_tools(self) -> list[ToolDefinition]:
        """Return the tools that the server lists; none if it has no list."""
        call = self.client.get(self.name, "/tools")
        reply = await reply_to(
            call, server=self.name, during="/tools", otherwise=EnvironmentFailed, tolerates=NO_SUCH_ROUTE
        )
        listed = await get_response_json(reply) if reply.ok else []
        return listed if isinstance(listed, list) else []

    def check(self) -> None:
        """Raise `LaunchError` if the server has died and could not be restarted."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop the server if it was started for this object. A second call does nothing."""
        self._is_closing.set()
        if self._started is not None:
            self._watching.join()
            self._started.stop()

    def _watch(self) -> None:
        assert self._started is not None
        try:
            while not self._is_closing.is_set():
                self._started.watch(WATCH_S)
        except LaunchError as error:
            self._failure = error


def running(address: str, server: str | None, run_token: str | None) -> OpenServer:
    """Return a resources server of the run whose head server is at `address`."""
    client = ServerClient.load_from_global_config(head_at(address), run_token)
    servers = client.address_book.servers
    return OpenServer(_chosen([name for name in servers if servers[name].type == RESOURCES_TIER], server), client)


def started(sources: Sequence[str | Path], server: str | None, overrides: Sequence[str]) -> OpenServer:
    """Start a resources server from a folder or config files, together with the servers that it calls."""
    # Use any free port for the head server. No command needs to find it, and other runs may need the default port.
    words = ["+head_server.port=0", *overrides]
    run = graders_of(load_for_grading([_config_of(source) for source in sources], words))
    name = _chosen([each.name for each in run.servers_of(RESOURCES_TIER)], server)
    servers = launch(
        only_for(run, [name]),
        on_line=lambda source, line: logger.info("(%s) %s", source, line),
        notice=logger.warning,
    )
    return OpenServer(name, ServerClient.of_run(servers.run), servers)


def _config_of(source: str | Path) -> str:
    folder = find(source, Path.is_dir)
    return str(own_config(folder)) if folder is not None else str(source)


def _chosen(names: Sequence[str], wanted: str | None) -> str:
    if wanted in names:
        return str(wanted)
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted is None:
        raise UsageError(f"environment: choose one of the resources servers with server='NAME': {', '.join(names)}.")
    hint = did_you_mean_or_all(wanted, names, "servers")
    raise UsageError(f"environment: no resources server is named '{wanted}'.{hint}")
