"""Everything that a client must know of a run to call its servers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.access import allows_policy_override
from nemo_gym.config.model_cache import model_cache_of
from nemo_gym.config.models import RunConfig
from nemo_gym.config.observability import CAPTURE_DIR_KEY, ModelCallCaptureConfig, is_enabled
from nemo_gym.config.process import OtherServer, ProcessSettings
from nemo_gym.config.settings import (
    AGENT_TIER,
    DEPTH_KEY,
    ENVIRONMENT_SERVERS,
    GROUP_KEY,
    RESOURCES_TIER,
    SERVER_TYPES,
)
from nemo_gym.config.suggestions import ADD_A_FILE
from nemo_gym.config.token_capture import TOKEN_CAPTURE_KEY, TokenCaptureConfig
from nemo_gym.errors import ServerCallError
from nemo_gym.http.json_depth import DEEPEST_REQUEST


class Address(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True)
class AddressBook:
    """The servers of a run, and the settings of calls to them."""

    servers: Mapping[str, OtherServer] = field(default_factory=dict)
    """The servers by all their names."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of agents (`environment_servers` blocks), each with its agent instance."""
    capture: ModelCallCaptureConfig = field(default_factory=ModelCallCaptureConfig)
    token_capture: TokenCaptureConfig = field(default_factory=TokenCaptureConfig)
    capturing: frozenset[str] = frozenset()
    """All names of the agents whose own block asks for token capture. A server's own book does not list them."""
    grouped: Mapping[str, str] = field(default_factory=dict)
    """The resources server that verifies all rollouts of a task together, by all names of the agents that use one.
    A server's own book does not list them."""
    depths: Mapping[str, int] = field(default_factory=dict)
    """How deep a row may nest, by all names of the agents whose servers have a limit of their own. A server's own book
    does not list them."""
    shortcuts: Mapping[str, str] = field(default_factory=dict)
    """Unix sockets on which servers listen too, by server name."""
    run_token: str | None = field(default=None, repr=False)
    """Sent with every call, like the run's id."""
    run_id: str = ""
    allows_policy_override: bool = False
    """Whether a row may name its own policy."""
    model_cache: Path | None = None
    """The folder in which model servers keep the replies of their endpoints."""

    @classmethod
    def of_settings(cls, settings: ProcessSettings) -> Self:
        """Return the address book of a server's process."""
        own = OtherServer(settings.type, settings.implementation, settings.host, settings.port)
        return cls(
            {**settings.addresses, settings.name: own},
            capture=ModelCallCaptureConfig.of(settings.plain),
            token_capture=TokenCaptureConfig.of(settings.plain),
            shortcuts=settings.shortcuts,
            run_token=settings.run_token,
            run_id=settings.run_id,
            allows_policy_override=allows_policy_override(settings.plain),
            model_cache=model_cache_of(settings.plain),
        )

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return the address book of a process that started the servers."""
        servers = {
            name: OtherServer(server.type, server.implementation, server.host, server.port)
            for name, server in run.by_any_name()
        }
        capturing = (name for name, server in run.by_any_name() if server.settings.get(TOKEN_CAPTURE_KEY) is True)
        return cls(
            servers,
            run.aliases,
            capture=ModelCallCaptureConfig.of(run.plain),
            token_capture=TokenCaptureConfig.of(run.plain),
            capturing=frozenset(capturing),
            grouped=grouped_agents(run),
            depths=row_depths(run),
            shortcuts=run.shortcuts,
            run_token=run.run_token,
            run_id=run.run_id,
            allows_policy_override=allows_policy_override(run.plain),
            model_cache=model_cache_of(run.plain),
        )

    @classmethod
    def of_published(cls, config: object) -> Self:
        """Return the address book of a whole configuration, for published code that has nothing else.

        Blocks that cannot be resolved are skipped. Tests of published folders may pass a mock or None.
        """
        if not isinstance(config, Mapping):
            return cls()
        instances = {str(key): _instance_of(config, str(key)) for key in config}
        servers = {name: _server_in(config, instance) for name, instance in instances.items()}
        folder = config.get(CAPTURE_DIR_KEY) if is_enabled(config) else None
        return cls(
            {name: server for name, server in servers.items() if server is not None},
            {name: instance for name, instance in instances.items() if name != instance},
            capture=ModelCallCaptureConfig(observability_enabled=is_enabled(config), model_call_capture_dir=folder),
            token_capture=TokenCaptureConfig.of(config),
            capturing=frozenset(name for name, instance in instances.items() if _asks_for_tokens(config, instance)),
            grouped={name: server for name, instance in instances.items() if (server := _groups_of(config, instance))},
            depths={name: depth for name, instance in instances.items() if (depth := _depth_of(config, instance))},
            allows_policy_override=allows_policy_override(config),
            model_cache=model_cache_of(config),
        )

    def address_of(self, name: str) -> Address:
        """Return the address of a server. Raise `ServerCallError` with the known names for an unknown one."""
        server = self.servers.get(name)
        if server is None:
            known = ", ".join(sorted(self.servers))
            listed = f"; there are: {known}" if known else f". {ADD_A_FILE}"
            raise ServerCallError(f"no server is named '{name}'{listed}", was_sent=False)
        if not server.host:
            raise ServerCallError(f"the configuration does not set host and port of '{name}'", was_sent=False)
        return Address(server.host, server.port)

    def tier_of(self, name: str) -> str | None:
        """Return the tier of a server, or None for an unknown name."""
        return self.servers[name].type if name in self.servers else None

    def capture_dir(self) -> Path | None:
        """Return the folder of the recorded calls; None if recording is off. Raise `ConfigError` if invalid."""
        return ModelCallCaptureConfig.of(self.capture.model_dump()).store_dir

    def captures_tokens_of(self, agent: str | None) -> bool:
        """Return whether the model calls of an agent are recorded with their tokens."""
        return self.token_capture.enabled and (self.token_capture.all_agents or agent in self.capturing)

    def agent_names(self) -> list[str]:
        """Return the names of the agents, aliases included."""
        return [name for name, server in self.servers.items() if server.type == AGENT_TIER]


def grouped_agents(run: RunConfig) -> dict[str, str]:
    """Return the resources server that verifies all rollouts of a task together, by all names of agents with one."""
    found = {}
    for name, agent in run.by_any_name():
        used = agent.settings.get("resources_server")
        server = str(used.get("name")) if isinstance(used, Mapping) else ""
        if server in run.servers and run.servers[server].settings.get(GROUP_KEY) is not None:
            found[name] = server
    return found


def row_depths(run: RunConfig) -> dict[str, int]:
    """Return how deep a row may nest, by all names of the agents whose servers have a limit of their own."""
    found = {}
    for name, agent in run.by_any_name():
        used = agent.settings.get("resources_server") if agent.type == AGENT_TIER else None
        server = run.servers.get(str(used.get("name"))) if isinstance(used, Mapping) else None
        if depth := _depth_among([agent.settings, *([server.settings] if server else [])]):
            found[name] = depth
    return found


def _depth_among(blocks: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the smallest limit of an agent and its resources server, None if neither sets one."""
    limits = [block.get(DEPTH_KEY) for block in blocks]
    if all(limit is None for limit in limits):
        return None
    return min(limit if isinstance(limit, int) else DEEPEST_REQUEST for limit in limits)


def _instance_of(config: Mapping[str, Any], name: str) -> str:
    """Resolve the name of an `environment_servers` block to its agent instance; return other names unchanged."""
    # The bound ends a cycle of names: a chain has no more links than there are names.
    for _ in range(len(config)):
        named = _block(_block(config, name), ENVIRONMENT_SERVERS)
        agent = _block(_block(named, next(iter(named))), "agent_server") if named else {}
        try:
            name = str(agent["name"])
        except (KeyError, OmegaConfBaseException):
            break
    return name


def _server_in(config: Mapping[str, Any], instance: str) -> OtherServer | None:
    block = _block(config, instance)
    tier = next((tier for tier in SERVER_TYPES if tier in block), None)
    if tier is None:
        return None
    implementations = _block(block, tier)
    name = next(iter(implementations), "")
    settings = _block(implementations, name)
    try:
        return OtherServer(tier, str(name), settings["host"], int(settings["port"]))
    except (KeyError, TypeError, ValueError, OmegaConfBaseException):
        return OtherServer(tier, str(name), "", 0)


def _asks_for_tokens(config: Mapping[str, Any], instance: str) -> bool:
    agents = _block(_block(config, instance), AGENT_TIER)
    return any(_block(agents, name).get(TOKEN_CAPTURE_KEY) is True for name in agents)


def _groups_of(config: Mapping[str, Any], instance: str) -> str | None:
    """Return the name of an agent's resources server if that verifies groups."""
    agents = _block(_block(config, instance), AGENT_TIER)
    for name in agents:
        server = _block(_block(agents, name), "resources_server").get("name")
        servers = _block(_block(config, str(server)), RESOURCES_TIER)
        if any(_block(servers, each).get(GROUP_KEY) is not None for each in servers):
            return str(server)
    return None


def _depth_of(config: Mapping[str, Any], instance: str) -> int | None:
    """Return how deep the rows of an agent may nest, None if its servers do not set a limit."""
    agents = _block(_block(config, instance), AGENT_TIER)
    for name in agents:
        agent = _block(agents, name)
        servers = _block(_block(config, str(_block(agent, "resources_server").get("name"))), RESOURCES_TIER)
        return _depth_among([agent, *(_block(servers, each) for each in servers)])
    return None


def _block(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key, or an empty one if the value is unresolved or not a mapping."""
    if OmegaConf.is_config(config) and (OmegaConf.is_interpolation(config, key) or OmegaConf.is_missing(config, key)):
        return {}
    block = config.get(key)
    return block if isinstance(block, Mapping) else {}
