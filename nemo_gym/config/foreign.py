"""Forms of a configuration that only other packages use. Their readers are imported when a configuration has one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from nemo_gym.config.settings import ENVIRONMENT_SERVERS
from nemo_gym.config.tree import Node

ADDED_SETTINGS = frozenset({"advertised_host", "advertised_port", "isolated", "ray", "workers"})
"""The settings of every server block that older packages do not have, and that are read before the server starts."""


def own_fields(folder: Path, keys: Iterable[str]) -> frozenset[str]:
    """Return those `keys` of a block that its folder's config class uses for something else."""
    added = ADDED_SETTINGS.intersection(keys)
    if not added:
        return frozenset()
    found: frozenset[str] = _reader("own_fields").own_fields(folder, added)
    return found


def with_environments_as_agents(tree: Node) -> Node:
    """Return the tree with each environment server that this package can run moved to the agents' tier."""
    if not any(ENVIRONMENT_SERVERS in block.mapping for block in tree.mapping.values()):
        return tree
    result: Node = _reader("environments").with_environments_as_agents(tree)
    return result


def _reader(name: str) -> Any:
    return import_module(f"nemo_gym.published.{name}")
