"""The address book of a run: everything that a client needs to call the run's servers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from nemo_gym.calls.task_rules import AgentBlocks, TaskRules, agents_of_run
from nemo_gym.config.hosts import loopback_of
from nemo_gym.config.models import RunConfig
from nemo_gym.config.process import OtherServer, ProcessSettings
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.settings import AGENT_TIER
from nemo_gym.config.tls import Tls
from nemo_gym.errors import ServerCallError
from nemo_gym.text import ADD_A_FILE


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
            capturing=capturing(agents),
            task_rules=TaskRules.of(agents),
            shortcuts=run.shortcuts,
            run_token=run.run_token,
            run_id=run.run_id,
            tls=run.tls,
            head=Address(loopback_of(run.head.host), run.head.port) if run.member else None,
            member=run.member,
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


def capturing(agents: Iterable[AgentBlocks]) -> frozenset[str]:
    """Return the names of the agents whose own block enables token capture."""
    return frozenset(each.name for each in agents if each.agent.get("token_id_capture") is True)
