"""The description of a run that its head server returns: everything that calls to its servers need, but no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from nemo_gym.config.hosts import is_any_address
from nemo_gym.config.masking import masked
from nemo_gym.config.models import Frozen, HeadConfig, RunConfig, ServerConfig
from nemo_gym.config.run_settings import RolloutKeys, RunSettings
from nemo_gym.config.subject import RunSubject

SETTINGS = frozenset({*RolloutKeys.model_fields, "model_cache", "allow_policy_override"})
"""The settings of the run that matter to a process that calls its servers."""
FIELDS_OF_SERVER = {"name", "type", "implementation", "entrypoint", "folder", "host", "port", "scheme"}
"""The fields of a server that matter to a process that calls it."""
SETTINGS_OF_SERVER = (
    "resources_server", "model_server", "token_id_capture", "group_verification", "max_request_depth",
)  # fmt: skip
"""The settings of a server that matter to a process that calls it: what it uses, and its rules for rows."""


class SharedRun(Frozen):
    """A run as its head server describes it."""

    run: RunConfig = RunConfig(servers={})
    """The run without its token, and with only those settings that other processes need."""
    subject: RunSubject = RunSubject()
    config_yaml: str = ""
    """The merged configuration, as the head server shows it."""

    @classmethod
    def of(cls, run: RunConfig) -> Self:
        given = run.settings.model_dump(include=set(SETTINGS), exclude_defaults=True)
        shared = RunConfig(
            servers={name: _without_details(server) for name, server in run.servers.items()},
            head=HeadConfig(host=run.head.host, port=run.head.port),
            aliases=run.aliases,
            settings=RunSettings.model_validate(masked(given)),
            run_id=run.run_id,
            shortcuts=run.shortcuts,
            member=run.member,
        )
        return cls(run=shared, subject=RunSubject.of_run(run))

    def reached_at(self, host: str, joined: Mapping[str, tuple[str, int]], config_yaml: str) -> Self:
        """Return the run with addresses that a caller can use.

        `host` is the host by which the caller reached the head server. `joined` contains the host and port of servers
        on other machines, by name.
        """
        servers = {}
        for name, server in self.run.servers.items():
            own = host if is_any_address(server.host) else server.host
            at, port = joined.get(name, (own, server.port))
            servers[name] = server.model_copy(update={"host": at, "port": port})
        run = self.run.model_copy(update={"servers": servers})
        return self.model_copy(update={"run": run, "config_yaml": config_yaml})


def _without_details(server: ServerConfig) -> ServerConfig:
    settings = {name: server.settings[name] for name in SETTINGS_OF_SERVER if name in server.settings}
    return ServerConfig(**server.model_dump(include=FIELDS_OF_SERVER), settings=masked(settings))
