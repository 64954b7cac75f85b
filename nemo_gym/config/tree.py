"""A configuration tree with the origin of every value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nemo_gym.config.models import Origin

Scalar = str | int | float | bool | None
Key = str | int | float | bool
Path = tuple[Key, ...]
"""The keys from the top of a tree to a value. List items count from 0."""

UNSET = "???"
"""The placeholder for a required value that is not set yet."""

REFERENCE = re.compile(r"^\$\{\s*([^${}:]+?)\s*\}$")
"""A regular expression for a value that consists only of `${a.b}`."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value and its origin. Trees share containers, so they must not be changed in place."""

    value: Scalar | dict[Key, Node] | list[Node]
    origin: Origin

    @property
    def mapping(self) -> dict[Key, Node]:
        """The entries of a mapping; empty for any other value."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def is_unset(self) -> bool:
        """Whether the value is the placeholder `???`."""
        return self.value == UNSET

    def updated(self, **entries: Node) -> Node:
        """Return a copy of this mapping with these entries added or replaced."""
        added: dict[Key, Node] = {**self.mapping}
        added.update(entries)
        return Node(added, self.origin)

    def without(self, *keys: Key) -> Node:
        """Return a copy of this mapping without these keys."""
        return Node({key: child for key, child in self.mapping.items() if key not in keys}, self.origin)


def node_of(value: Any, origin: Origin) -> Node:
    """Return a plain Python value as a tree with a single origin."""
    if isinstance(value, Mapping):
        return Node({key: node_of(child, origin) for key, child in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node([node_of(item, origin) for item in value], origin)
    return Node(value, origin)


def plain(node: Node) -> Any:
    """Return the tree as plain dicts, lists and scalars."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def dotted(path: Path) -> str:
    """Return a path in dotted form: `a.b.0`."""
    return ".".join(map(str, path))


def split_key(key: str) -> tuple[str, ...]:
    """Split a dotted key into parts: `a.b[0].c` becomes `a`, `b`, `0`, `c`."""
    return tuple(part for part in re.split(r"[.\[\]]+", key) if part)


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Yield a node and every node below it, each with its path."""
    yield path, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from walk(child, (*path, key))
    elif isinstance(node.value, list):
        for index, item in enumerate(node.value):
            yield from walk(item, (*path, index))


class Child(NamedTuple):
    """A mapping entry or list item, and the number of parts of a dotted key that its key has."""

    key: Key
    node: Node
    used: int = 1


def child_of(node: Node, part: Key) -> Child | None:
    """Return the mapping entry or list item of this key or index, or None if it does not exist."""
    if isinstance(node.value, dict):
        if part in node.value:
            return Child(part, node.value[part])
        return next((Child(key, child) for key, child in node.value.items() if str(key) == str(part)), None)
    if isinstance(node.value, list) and str(part).isdigit() and int(part) < len(node.value):
        return Child(int(part), node.value[int(part)])
    return None


def step(node: Node, parts: Path) -> Child | None:
    """Return the child for the first parts of a dotted key, or None if it does not exist.

    Keys may contain dots (`gpt-4.1`), so parts are joined if the first part alone does not match.
    """
    for count in range(1, len(parts) + 1):
        found = child_of(node, parts[0] if count == 1 else dotted(parts[:count]))
        if found:
            return found._replace(used=count)
    return None


def locate(node: Node, parts: Path) -> Path | None:
    """Return the path to the value of a dotted key, or None if it does not exist."""
    path: Path = ()
    while parts:
        found = step(node, parts)
        if found is None:
            return None
        key, node, used = found
        path, parts = (*path, key), parts[used:]
    return path


def at(node: Node, path: Path) -> Node:
    """Return the value at a path from `locate` or `walk`. Raise `KeyError` if it does not exist."""
    for part in path:
        found = child_of(node, part)
        if found is None:
            raise KeyError(dotted(path))
        node = found.node
    return node


def find(node: Node, parts: Path) -> Node | None:
    """Return the value of a dotted key, or None if it does not exist."""
    path = locate(node, parts)
    return None if path is None else at(node, path)


def replaced(node: Node, path: Path, new: Node | None) -> Node:
    """Return a copy of the tree with the value at this path replaced, or removed if `new` is None."""
    head, rest = path[0], path[1:]
    if isinstance(node.value, list):
        index = int(str(head))
        middle = [replaced(node.value[index], rest, new)] if rest else [new] if new else []
        return Node([*node.value[:index], *middle, *node.value[index + 1 :]], node.origin)
    if rest:
        return Node({**node.mapping, head: replaced(node.mapping[head], rest, new)}, node.origin)
    return node.without(head) if new is None else Node({**node.mapping, head: new}, node.origin)


def merge(base: Node, over: Node, root: Node | None = None) -> Node:
    """Merge one tree over another: mappings are merged key by key, other values are replaced, `???` is ignored.

    As in OmegaConf, if the base is `${a.b}`, a mapping is merged over the value of `a.b` in `root`.
    """
    if over.is_unset:
        return base
    if not isinstance(over.value, dict):
        return over
    if root is not None and isinstance(base.value, str) and (reference := REFERENCE.match(base.value)):
        target = find(root, split_key(reference[1]))
        base = target if target is not None and isinstance(target.value, dict) else base
    if not isinstance(base.value, dict):
        return over
    entries = dict(base.value)
    for key, child in over.value.items():
        entries[key] = merge(entries[key], child, root) if key in entries else child
    return Node(entries, base.origin)


def origins(node: Node, root: Node | None = None) -> dict[str, Origin]:
    """Return the origin of each dotted key below a node; "" is the node itself.

    With `root`, a value that is only `${a.b}` gets the origin of `a.b`, because a wrong value must be corrected there.
    """
    return {dotted(path): (referred(found, root) if root else found).origin for path, found in walk(node)}


def referred(node: Node, root: Node) -> Node:
    """Return the final target of a value that is only `${a.b}`. Return any other value unchanged."""
    seen = [node]
    while isinstance(seen[-1].value, str) and (reference := REFERENCE.match(seen[-1].value)):
        target = None if reference[1].startswith(".") else find(root, split_key(reference[1]))
        if target is None or target in seen:
            return node
        seen.append(target)
    return seen[-1]
