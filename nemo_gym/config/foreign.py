"""Forms that none of our own configurations has. Their readers are imported when a configuration has one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from nemo_gym.config.settings import ENVIRONMENT_SERVERS
from nemo_gym.config.tree import Node, walk

ADDED_SETTINGS = frozenset({"advertised_host", "advertised_port", "isolated", "ray", "workers"})
"""The settings of every server block that older packages do not have, and that are read before the server starts."""
INHERIT, COPY, DELETE = "_inherit_from", "_copy", "_delete_key"
"""The directives of a block."""
STRING_FORM = re.compile(r"^\$\{\s*(inherit_from|copy)\s*:\s*([^${}]+?)\s*\}$")
"""A regular expression for a value that is taken from another place."""


def follow_directives(tree: Node) -> Node:
    """Return the tree with every directive applied."""
    if not any(_has_directive(node) for _, node in walk(tree)):
        return tree
    result: Node = _reader("directives").follow_directives(tree)
    return result


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


def _has_directive(node: Node) -> bool:
    if isinstance(node.value, str):
        return STRING_FORM.match(node.value) is not None
    return any(name in node.mapping for name in (INHERIT, COPY, DELETE))


def _reader(name: str) -> Any:
    return import_module(f"nemo_gym.published.{name}")
