"""Forms of a configuration that only other packages use. Their readers are imported when a configuration has one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nemo_gym.config.settings import ENVIRONMENT_SERVERS
from nemo_gym.config.tree import Node


def with_environments_as_agents(tree: Node) -> Node:
    """Return the tree with each environment server that this package can run moved to the agents' tier."""
    if not any(ENVIRONMENT_SERVERS in block.mapping for block in tree.mapping.values()):
        return tree
    result: Node = _reader("environments").with_environments_as_agents(tree)
    return result


def _reader(name: str) -> Any:
    return import_module(f"nemo_gym.published.{name}")
