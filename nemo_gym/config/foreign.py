"""Forms that none of our own configurations has. Their readers are imported when a configuration has one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nemo_gym.config.models import Origin, RunConfig
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, BaseResponsesAPIModelConfig
from nemo_gym.config.tree import Node, walk
from nemo_gym.config.tree import Path as KeyPath

ADDED_SETTINGS = frozenset({"advertised_host", "advertised_port", "isolated", "ray", "workers"})
"""The settings of every server block that older packages do not have, and that are read before the server starts."""
INHERIT, COPY, DELETE = "_inherit_from", "_copy", "_delete_key"
"""The directives of a block."""
STRING_FORM = re.compile(r"^\$\{\s*(inherit_from|copy)\s*:\s*([^${}]+?)\s*\}$")
"""A regular expression for a value that is taken from another place."""


def follow_directives(tree: Node) -> Node:
    """Return the tree with every directive applied."""
    if not has_directives(tree):
        return tree
    result: Node = _reader("directives").follow_directives(tree)
    return result


def has_directives(tree: Node) -> bool:
    return any(_has_directive(node) for _, node in walk(tree))


def is_inherited(tree: Node, parts: KeyPath) -> bool:
    """Return whether a block above a key will inherit the key from another block."""
    return has_directives(tree) and _reader("directives").inheriting(tree, parts) is not None


def without_inherited(tree: Node, parts: KeyPath, origin: Origin) -> Node:
    """Return the tree in which the block that inherits a key leaves it out. `origin` is the place of the deletion."""
    result: Node = _reader("directives").without_inherited(tree, parts, origin)
    return result


def own_fields(folder: Path, keys: Iterable[str]) -> frozenset[str]:
    """Return those `keys` of a block that its folder's config class uses for something else."""
    added = ADDED_SETTINGS.intersection(keys)
    if not added:
        return frozenset()
    found: frozenset[str] = _reader("own_fields").own_fields(folder, added)
    return found


def with_our_names(
    kind: type[BaseModel], settings: Mapping[str, object], block: str, origins: Mapping[str, Origin]
) -> Mapping[str, object]:
    """Return a server's settings with the names of the class `kind`."""
    if settings.keys() <= kind.model_fields.keys() or not issubclass(kind, BaseResponsesAPIModelConfig):
        return settings
    found: Mapping[str, object] = _reader("model_settings").with_our_names(kind, settings, block, origins)
    return found


def run_of_config(config: Mapping[str, Any]) -> RunConfig:
    """Return the run of a whole configuration, for clients that were created with nothing else."""
    if not config:
        return RunConfig(servers={})
    found: RunConfig = _reader("whole_config").run_of_config(config)
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
