"""Find the environment variables and the values of env.yaml that a part of a configuration needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nemo_gym.config.tree import Node, find, plain, split_key, walk

_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*([^,${}\s]+)\s*(,)?")
_REFERENCE = re.compile(r"\$\{\s*([^${}:,\s]+)\s*\}")


class Needs(NamedTuple):
    """The values that a part of a configuration needs from outside the config files."""

    variables: Mapping[str, bool]
    """Environment variables, and whether each may be missing."""
    open_keys: tuple[str, ...]
    """Keys that must be in env.yaml, because no config file defines them."""


def needs_of(tree: Node, *blocks: Node) -> Needs:
    """Return the environment variables and keys that these blocks of `tree` need, directly or through references."""
    variables: dict[str, bool] = {}
    open_keys: dict[str, None] = {}
    owed, seen = list(blocks), set[str]()
    while owed:
        for text in _texts(owed.pop()):
            for name, default in _VARIABLE.findall(text):
                variables[name] = bool(default) and variables.get(name, True)
            for key in _REFERENCE.findall(text):
                # Skip a key that starts with a dot, because it refers to the same block.
                if key.startswith(".") or key in seen:
                    continue
                seen.add(key)
                if (found := find(tree, split_key(key))) is None:
                    open_keys[key] = None
                else:
                    owed.append(found)
    return Needs(dict(sorted(variables.items())), tuple(sorted(open_keys)))


def _texts(node: Node) -> Iterator[str]:
    return (str(plain(each)) for _, each in walk(node) if isinstance(each.value, str) and "${" in each.value)
