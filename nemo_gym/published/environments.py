"""Support for `environment_servers` blocks that define a server. This package runs such a server as an agent."""

from __future__ import annotations

import logging
from pathlib import Path

from nemo_gym.config.models import Origin
from nemo_gym.config.pairing import LEGACY_AGENT
from nemo_gym.config.settings import AGENT_TIER, ENVIRONMENT_SERVERS
from nemo_gym.config.tree import Key, Node, node_of
from nemo_gym.paths import find

logger = logging.getLogger(__name__)

FOLDER = "single_agent_turn"
SETTINGS_OF: dict[Key, dict[str, object]] = {FOLDER: {}, f"{FOLDER}_legacy": {"seed_with": "row"}}
"""The implementations of `environment_servers` that are run as agents, each with the settings that it implies."""
RESOURCES_SERVER = "resources_server"


def with_environments_as_agents(tree: Node) -> Node:
    """Return the tree with each block that has an implementation in `SETTINGS_OF` moved to the agents' tier.

    Log a warning for each other block whose folder contains code, because this code is not run.
    """
    for name, block in tree.mapping.items():
        environment = block.mapping.get(ENVIRONMENT_SERVERS)
        if environment is None or AGENT_TIER in block.mapping or len(environment.mapping) != 1:
            continue
        (implementation, settings), *_ = environment.mapping.items()
        if implementation not in SETTINGS_OF or not settings.mapping:
            _warn_of_own_code(f"{settings.origin}: {name}.{ENVIRONMENT_SERVERS}", str(implementation))
            continue
        implied = node_of(SETTINGS_OF[implementation], settings.origin).mapping
        settings = Node({**implied, **_resources_server(tree, settings), **settings.mapping}, settings.origin)
        tier = Node({FOLDER: settings}, environment.origin)
        tree = tree.updated(**{str(name): block.without(ENVIRONMENT_SERVERS).updated(**{AGENT_TIER: tier})})
    return tree


def _warn_of_own_code(place: str, implementation: str) -> None:
    folder = find(Path(ENVIRONMENT_SERVERS, implementation), Path.is_dir)
    if implementation != LEGACY_AGENT and folder is not None:
        logger.warning(
            "%s.%s: the code in %s is not run; the block is only another name of its agent_server. Use %s to run "
            "episodes",
            place,
            implementation,
            folder,
            " or ".join(map(str, SETTINGS_OF)),
        )


def _resources_server(tree: Node, settings: Node) -> dict[Key, Node]:
    """Return the `resources_server` entry of a block's `agent_server`, or an empty dict if there is none."""
    name = _child(settings, "agent_server", "name").value
    if not isinstance(name, str):
        return {}
    agent = next(iter(_child(tree, name, AGENT_TIER).mapping.values()), settings)
    return {key: node for key, node in agent.mapping.items() if key == RESOURCES_SERVER}


def _child(node: Node, *keys: str) -> Node:
    for key in keys:
        node = node.mapping.get(key, Node(None, Origin("", 0)))
    return node
