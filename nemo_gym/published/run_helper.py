"""Start and stop servers from a program. Training frameworks do this instead of running `ng_run`."""

from __future__ import annotations

from nemo_gym.cli import printing, running
from nemo_gym.cli.options import settings_from
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config.view import set_view, view_of
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.local import RunningServers
from nemo_gym.published.global_config import GlobalConfigDictParserConfig

WATCH_S = 3600.0


class RunHelper:
    """A helper that starts and stops the servers of one configuration. At the end of a `with` block, it stops them."""

    def __init__(self) -> None:
        self._servers: RunningServers | None = None

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> None:
        """Start every server, and return once all servers and their model endpoints answer.

        Raise `ConfigError` or `LaunchError` on failure, after stopping every server. After a successful start,
        `get_global_config_dict` in this process returns the configuration with the addresses of all servers.
        """
        if self._servers is not None:
            raise LaunchError("the servers of this RunHelper are already running. Call shutdown() first.")
        run = (global_config_dict_parser_config or GlobalConfigDictParserConfig()).load(require_servers=True)
        settings = settings_from(StartSettings, run.plain)
        servers = running.launch_for(run, settings, None, on_line=printing.print_line)
        try:
            if not settings.dry_run:
                running.await_model_endpoints(servers, settings)
        except BaseException:
            servers.stop()
            raise
        self._servers = servers
        set_view(view_of(servers.run))

    def poll(self) -> None:
        """Raise `LaunchError`, with the last lines of the server's log, if a server died and will not be restarted."""
        self._running().watch(timeout_s=0.0)

    def wait_for_spinup(self) -> None:
        """Return at once, because `start` has already waited. Raise `LaunchError` if `start` was not called."""
        self._running()

    def display_server_instance_info(self) -> None:
        """Print the table of servers."""
        running.show_instances(self._running().instances)

    def run_forever(self) -> None:
        """Keep the servers up until one fails for good or the program is interrupted."""
        try:
            while True:
                self._running().watch(timeout_s=WATCH_S)
        except KeyboardInterrupt:
            return
        finally:
            self.shutdown()

    def shutdown(self) -> None:
        """Stop every server; a second call does nothing."""
        if self._servers is not None:
            self._servers.stop()
            self._servers = None

    def __enter__(self) -> RunHelper:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    def _running(self) -> RunningServers:
        if self._servers is None:
            raise LaunchError("no servers are running. Call start() first.")
        return self._servers
