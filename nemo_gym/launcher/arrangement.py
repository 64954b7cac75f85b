"""The processes of a run: which servers each of them has, and how many of a kind there are."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from nemo_gym.config import RunConfig

TOGETHER = "together"


class Arranged(NamedTuple):
    """One process."""

    name: str
    """The instance, or `together`; with `#<n>` behind it from the second of a kind on."""
    servers: tuple[str, ...]
    number: int
    """Which of its kind it is, from 0."""
    of: int
    """How many of its kind there are; all of them answer under the same addresses."""


def arrange(run: RunConfig, *, apart: Collection[str] = (), one_by_one: bool = False) -> list[Arranged]:
    """Every process that the run's servers need, in the order of the configuration.

    Servers in `apart` cannot share a process, having an interpreter of their own; with `one_by_one` none does.
    """
    shared = [
        server.name
        for server in run.servers.values()
        if (server.placement or run.placement.kind) == TOGETHER and server.name not in apart and not one_by_one
    ]
    arranged = _kind(TOGETHER, tuple(shared), run.placement.replicas) if shared else []
    for server in run.servers.values():
        if server.name not in shared:
            arranged += _kind(server.name, (server.name,), server.num_workers or 1)
    return arranged


def _kind(name: str, servers: tuple[str, ...], number: int) -> list[Arranged]:
    return [Arranged(f"{name}#{at + 1}" if at else name, servers, at, number) for at in range(number)]
