"""Names that configurations of earlier versions contain, with advice for each."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath

from nemo_gym.config.settings import AGENT_TIER
from nemo_gym.config.tree import Node
from nemo_gym.errors import ConfigError

_AGENT = "collecting_agent"
_INSTEAD = (
    "Rollouts are no longer collected on the agents' machines, because one collection feeds all of them. Remove this. "
    "Beyond 10,000 rollouts per second, start a collection per part of the tasks, such as --shard 1/4, and merge the "
    "outputs with ng eval aggregate."
)
_KEYS = {
    "collector": _INSTEAD,
    "sharded": _INSTEAD,
    "placement": (
        "Each server runs in its own processes. Remove it, and set replicas for several processes per server."
    ),
}


def removed_flag(flag: str) -> str | None:
    """Return advice for a flag of an earlier version, or None for any other flag."""
    return _KEYS.get(flag.lstrip("-"))


def removed_path(path: PurePath) -> str | None:
    """Return a sentence of advice for a missing folder or file of an earlier version, or None for any other path."""
    return f" {_INSTEAD}" if (AGENT_TIER, _AGENT) in pairwise(path.parts) else None


def check_nothing_removed(tree: Node) -> None:
    """Raise a ConfigError for a setting of an earlier version."""
    for key, node in tree.mapping.items():
        # A server may have the name of a removed setting.
        if (advice := _KEYS.get(str(key))) and not node.mapping:
            raise ConfigError(f"{node.origin}: {key} is not a setting. {advice}")
