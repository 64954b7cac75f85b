"""Requirements that agents and their resources servers place on tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import AGENT_TIER
from nemo_gym.http.json_depth import DEEPEST_REQUEST

Block = Mapping[str, Any]


class AgentBlocks(NamedTuple):
    """The settings of an agent, and of the resources server that it uses."""

    name: str
    agent: Block
    server_name: str
    server: Block | None
    """The settings of the resources server; None if this configuration does not have it."""


@dataclass(frozen=True)
class TaskRules:
    """The requirements of agents and their resources servers for rows and rollouts, keyed by agent name."""

    grouped: Mapping[str, str] = field(default_factory=dict)
    """Resources servers that verify all rollouts of a task together, by agent."""
    depths: Mapping[str, int] = field(default_factory=dict)
    """The JSON nesting limit of rows, by agent, if the agent or its resources server sets one."""

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        return cls.of(agents_of_run(run))

    @classmethod
    def of(cls, agents: Iterable[AgentBlocks]) -> Self:
        grouped, depths = {}, {}
        for each in agents:
            if each.server and each.server.get("group_verification") is not None:
                grouped[each.name] = each.server_name
            if depth := _smallest_depth(each.agent, each.server):
                depths[each.name] = depth
        return cls(grouped, depths)


def agents_of_run(run: RunConfig) -> Iterator[AgentBlocks]:
    """Yield each agent of a run once for each of its names."""
    for name, agent in run.by_any_name():
        if agent.type == AGENT_TIER:
            server = agent.referred("resources_server")
            found = run.servers.get(server)
            yield AgentBlocks(name, agent.settings, server, found.settings if found else None)


def _smallest_depth(agent: Block, server: Block | None) -> int | None:
    """Return the smaller nesting limit of the agent and its resources server, or None if neither sets one.

    If only one of them sets a limit, the limit of the other is `DEEPEST_REQUEST`.
    """
    limits = [block.get("max_request_depth") for block in (agent, server) if block is not None]
    if all(limit is None for limit in limits):
        return None
    return min(limit if isinstance(limit, int) else DEEPEST_REQUEST for limit in limits)
