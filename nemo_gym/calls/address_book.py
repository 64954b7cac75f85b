"""The address book of a run: everything that a client needs to call the run's servers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from nemo_gym.calls.task_rules import AgentBlocks, TaskRules, agents_of_config, agents_of_run, block_in
from nemo_gym.config.access import RUN_TOKEN_KEY, configured_token
from nemo_gym.config.hosts import loopback_of
from nemo_gym.config.models import MEMBER_KEY, RUN_ID_KEY, RunConfig
from nemo_gym.config.process import OtherServer, ProcessSettings
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.settings import AGENT_TIER, ENVIRONMENT_SERVERS, SERVER_TYPES
from nemo_gym.config.suggestions import ADD_A_FILE
from nemo_gym.config.tls import Tls
from nemo_gym.config.token_capture import TOKEN_CAPTURE_KEY, TokenCaptureConfig
from nemo_gym.errors import ServerCallError


class Address(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True)
class AddressBook:
    """The servers of a run, and the settings of calls to them."""

    servers: Mapping[str, OtherServer] = field(default_factory=dict)
    """The servers by name. An agent is also listed under each of its aliases."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Agent instances by alias. An alias is the name of an `environment_servers` block."""
    settings: RunSettings = field(default_factory=RunSettings)
    capturing: frozenset[str] = frozenset()
    """All names of the agents whose own block enables token capture. Empty in a server's process."""
    task_rules: TaskRules = field(default_factory=TaskRules)
    """The requirements of agents for their rows and rollouts. Empty in a server's process."""
    shortcuts: Mapping[str, str] = field(default_factory=dict)
    """Unix sockets on which servers also listen, by server name."""
    run_token: str | None = field(default=None, repr=False)
    """The run token. Every call sends it, together with the run's id."""
    run_id: str = ""
    tls: Tls | None = None
    """TLS settings of calls to the servers; None if they do not use TLS."""
    head: Address | None = None
    """The address of the head server, which lists the servers. None unless the run has several machines."""
    member: str = ""
    """The part of the run that this process belongs to. Empty if it belongs to none, as in a run on one machine."""

    @classmethod
    def of_settings(cls, settings: ProcessSettings) -> Self:
        """Return the address book of a server's process."""
        own = OtherServer(settings.type, settings.implementation, settings.host, settings.port)
        return cls(
            {**settings.addresses, settings.name: own},
            settings.aliases,
            settings=settings.of_run,
            shortcuts=settings.shortcuts,
            run_token=settings.run_token,
            run_id=settings.run_id,
            tls=settings.tls,
            head=Address(settings.head.host, settings.head.port) if settings.member else None,
            member=settings.member,
        )

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return the address book of a process that started the servers."""
        servers = {
            name: OtherServer(server.type, server.implementation, server.local_host, server.port)
            for name, server in run.by_any_name()
        }
        agents = list(agents_of_run(run))
        return cls(
            servers,
            run.aliases,
            settings=run.settings,
            capturing=_capturing(agents),
            task_rules=TaskRules.of(agents),
            shortcuts=run.shortcuts,
            run_token=run.run_token,
            run_id=run.run_id,
            tls=run.tls,
            head=Address(loopback_of(run.head.host), run.head.port) if run.member else None,
            member=run.member,
        )

    @classmethod
    def of_config(cls, config: object) -> Self:
        """Return the address book of a whole configuration, for code that only has the configuration.

        Blocks that cannot be resolved are skipped. If `config` is not a mapping, the book is empty.
        """
        if not isinstance(config, Mapping):
            return cls()
        instances = {str(key): _instance_of(config, str(key)) for key in config}
        servers = {name: _server_in(config, instance) for name, instance in instances.items()}
        agents = list(agents_of_config(config, instances))
        member = str(config.get(MEMBER_KEY) or "")
        head = block_in(config, "head_server")
        return cls(
            {name: server for name, server in servers.items() if server is not None},
            {name: instance for name, instance in instances.items() if name != instance},
            settings=_settings_in(config),
            capturing=_capturing(agents),
            task_rules=TaskRules.of(agents),
            run_token=configured_token({RUN_TOKEN_KEY: config.get(RUN_TOKEN_KEY)}) if member else None,
            run_id=str(config.get(RUN_ID_KEY) or "") if member else "",
            tls=Tls.of(config),
            head=Address(str(head["host"]), int(head["port"])) if member and head else None,
            member=member,
        )

    def address_of(self, name: str) -> Address:
        """Return the address of a server. For an unknown name, raise `ServerCallError` with the known names."""
        server = self.servers.get(name)
        if server is None:
            known = ", ".join(sorted(self.servers))
            listed = f"; there are: {known}" if known else f". {ADD_A_FILE}"
            raise ServerCallError(f"no server is named '{name}'{listed}", was_sent=False)
        if not server.host and self.head is None:
            raise ServerCallError(
                f"the configuration does not set the host and the port of '{name}'. Set both in its block.",
                was_sent=False,
            )
        return Address(server.host, server.port)

    def tier_of(self, name: str) -> str | None:
        """Return the tier of a server, or None for an unknown name."""
        return self.servers[name].type if name in self.servers else None

    def captures_tokens_of(self, agent: str | None) -> bool:
        """Return whether the model calls of an agent are recorded with their tokens."""
        tokens = self.settings.token_id_capture
        return tokens.enabled and (tokens.all_agents or agent in self.capturing)

    def agent_names(self) -> list[str]:
        """Return the names of the agents, aliases included."""
        return [name for name, server in self.servers.items() if server.type == AGENT_TIER]


def _settings_in(config: Mapping[str, Any]) -> RunSettings:
    """Return the settings in a configuration that was not checked. Leave out invalid ones."""
    values: dict[str, object] = {}
    for name in RunSettings.model_fields:
        with suppress(OmegaConfBaseException):
            given = config.get(name)
            values[name] = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors()}
    valid = RunSettings.model_validate({name: value for name, value in values.items() if name not in wrong})
    # Tests of server folders enable the recording of calls and tokens without a folder.
    enabled: dict[str, object] = {"observability_enabled": values.get("observability_enabled") is True}
    tokens = values.get(TOKEN_CAPTURE_KEY)
    if isinstance(tokens, dict) and tokens.get("enabled") is True:
        enabled[TOKEN_CAPTURE_KEY] = TokenCaptureConfig.model_construct(**tokens)
    return valid.model_copy(update=enabled)


def _capturing(agents: Iterable[AgentBlocks]) -> frozenset[str]:
    return frozenset(each.name for each in agents if each.agent.get(TOKEN_CAPTURE_KEY) is True)


def _instance_of(config: Mapping[str, Any], name: str) -> str:
    """Resolve the name of an `environment_servers` block to its agent instance; return other names unchanged."""
    # Limit the number of steps to the longest possible chain, because names may form a cycle.
    for _ in range(len(config)):
        named = block_in(block_in(config, name), ENVIRONMENT_SERVERS)
        agent = block_in(block_in(named, next(iter(named))), "agent_server") if named else {}
        try:
            name = str(agent["name"])
        except (KeyError, OmegaConfBaseException):
            break
    return name


def _server_in(config: Mapping[str, Any], instance: str) -> OtherServer | None:
    block = block_in(config, instance)
    tier = next((tier for tier in SERVER_TYPES if tier in block), None)
    if tier is None:
        return None
    implementations = block_in(block, tier)
    name = next(iter(implementations), "")
    settings = block_in(implementations, name)
    if not any(key in settings for key in ("host", "port", "entrypoint")):
        # Skip a block that only overrides settings of a server that the run does not include.
        return None
    try:
        return OtherServer(tier, str(name), settings["host"], int(settings["port"]))
    except (KeyError, TypeError, ValueError, OmegaConfBaseException):
        return OtherServer(tier, str(name), "", 0)
