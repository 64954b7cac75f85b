"""Decide which servers run on which nodes of a Slurm job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.settings import MODEL_TIER
from nemo_gym.errors import UsageError
from nemo_gym.launcher.membership import needs_one_process
from nemo_gym.text import did_you_mean_or_all

HEAD = 0
"""The index of the node with the head server."""


class Part(NamedTuple):
    """A group of nodes that run the same servers."""

    nodes: tuple[int, ...]
    """The indices of these nodes in the job's list of nodes."""
    servers: tuple[str, ...]
    """Names of the servers, in the order of the config; empty for a node that has only the head server."""
    only_here: tuple[str, ...]
    """Names of the servers that no other part has."""


def parts_of(run: RunConfig, nodes: int, places: Sequence[str], *, models_everywhere: bool) -> list[Part]:
    """Return the parts of a run, starting with the part of the first node. Raise `UsageError` if a place is invalid.

    By default, servers that cannot have replicas run on the first node. Model servers also run there, because they
    only forward calls. With `models_everywhere`, model servers run on all nodes, because each node serves the model.
    """
    chosen: dict[str, frozenset[int]] = {}
    for place in places:
        name, indices = _parsed(place, run, nodes)
        if chosen.setdefault(name, indices) != indices:
            raise UsageError(
                f"place: '{place}' contradicts an earlier --place for {name}. Name all of its nodes in one, such as "
                f"{name}=0,2-3."
            )
    everywhere = frozenset(range(nodes))
    for name, server in run.servers.items():
        if name not in chosen:
            is_spread = models_everywhere if server.type == MODEL_TIER else True
            chosen[name] = everywhere if is_spread and not needs_one_process(server) else frozenset({HEAD})
        elif len(chosen[name]) > 1 and needs_one_process(server):
            raise UsageError(
                f"place: '{name}' cannot run on several nodes, because its rollouts share state in its memory, or "
                f"its tools are called over MCP. Give it one node, such as {name}=0."
            )
    by_servers: dict[tuple[str, ...], list[int]] = {}
    for node in range(nodes):
        servers = tuple(name for name in run.servers if node in chosen[name])
        # Give the first node its own part, even if others have the same servers, because it also has the head server.
        by_servers.setdefault(servers if node else ("", *servers), []).append(node)
    parts = [(tuple(indices), tuple(filter(None, names))) for names, indices in by_servers.items()]
    idle = [node for indices, names in parts if not names for node in indices if node != HEAD]
    if idle:
        raise UsageError(
            f"nodes: no server would run on {_words(idle)} of {nodes} nodes (counted from 0). Lower --nodes, or place "
            "a server there with --place NAME=all."
        )
    return [
        Part(indices, names, tuple(name for name in names if chosen[name] <= {*indices})) for indices, names in parts
    ]


def _parsed(place: str, run: RunConfig, nodes: int) -> tuple[str, frozenset[int]]:
    name, equals, where = place.partition("=")
    if not equals or not where:
        raise UsageError(f"place: '{place}' is not NAME=WHERE, such as policy_model=head or policy_model=0,2-3.")
    server: ServerConfig | None = run.servers.get(run.aliases.get(name, name))
    if server is None:
        raise UsageError(f"place: there is no server '{name}'.{did_you_mean_or_all(name, run.servers, 'servers')}")
    named = {"head": {HEAD}, "others": {*range(1, nodes)}, "all": {*range(nodes)}}
    indices = named[where] if where in named else _numbers(place, where)
    if beyond := sorted(indices - {*range(nodes)}):
        raise UsageError(f"place: '{place}' names node {beyond[0]}, but the last of {nodes} nodes is {nodes - 1}.")
    if not indices:
        raise UsageError(
            f"place: '{place}' matches no node, because the job has only one. Raise --nodes, or use {name}=head."
        )
    return server.name, frozenset(indices)


def _numbers(place: str, where: str) -> set[int]:
    found: set[int] = set()
    for word in where.split(","):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise UsageError(
                f"place: '{place}': the nodes must be head, others, all, or numbers from 0, such as 0,2-3."
            )
        found |= {*range(int(first), int(last or first) + 1)}
    return found


def _words(nodes: Sequence[int]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))}"
