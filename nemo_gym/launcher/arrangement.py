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

    Servers in `apart` cannot share a process, having an interpreter of their own; one with its own number of workers
    does not, unless its block says so. With `one_by_one` there is a process
    for each server, the first of its kind: enough to find out whether it can be built.
    """
    shared = [
        server.name
        for server in run.servers.values()
        if (server.placement or ("separate" if server.num_workers else run.placement.kind)) == TOGETHER
        and server.name not in apart
    ]
    numbers = {
        server.name: run.placement.replicas if server.name in shared else server.num_workers or 1
        for server in run.servers.values()
    }
    if one_by_one:
        return [Arranged(name, (name,), 0, number) for name, number in numbers.items()]
    arranged = _kind(TOGETHER, tuple(shared), run.placement.replicas) if shared else []
    for name, number in numbers.items():
        if name not in shared:
            arranged += _kind(name, (name,), number)
    return arranged


def _kind(name: str, servers: tuple[str, ...], number: int) -> list[Arranged]:
    return [Arranged(f"{name}#{at + 1}" if at else name, servers, at, number) for at in range(number)]
