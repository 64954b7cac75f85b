"""A configuration tree in which every value knows where it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.config.models import Origin

Scalar = str | int | float | bool | None
Key = str | int | float | bool
Path = tuple[Key, ...]
"""The keys that lead from the top to a value; list items count from 0."""

UNSET = "???"
"""Marks a value that somebody has to give."""

REFERENCE = re.compile(r"^\$\{\s*([^${}:]+?)\s*\}$")
"""A value that is nothing but `${a.b}`."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value and where it was written. The containers are never changed in place: trees share them."""

    value: Scalar | dict[Key, Node] | list[Node]
    origin: Origin

    @property
    def mapping(self) -> dict[Key, Node]:
        """The entries of a mapping; none where this is something else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def is_unset(self) -> bool:
        """Whether this is `???`."""
        return self.value == UNSET

    def having(self, **entries: Node) -> Node:
        """This mapping with some entries added or replaced."""
        added: dict[Key, Node] = {**self.mapping}
        added.update(entries)
        return Node(added, self.origin)

    def without(self, *keys: Key) -> Node:
        """This mapping less some entries."""
        return Node({key: child for key, child in self.mapping.items() if key not in keys}, self.origin)


def node_of(value: Any, origin: Origin) -> Node:
    """The tree of a plain Python value, all of it from one place."""
    if isinstance(value, Mapping):
        return Node({key: node_of(child, origin) for key, child in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node([node_of(item, origin) for item in value], origin)
    return Node(value, origin)


def plain(node: Node) -> Any:
    """The tree as plain dicts, lists and scalars."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def dotted(path: Path) -> str:
    """A path as people write it: `a.b.0`."""
    return ".".join(map(str, path))


def split_key(key: str) -> tuple[str, ...]:
    """The parts of a key as people write it: `a.b[0].c` gives `a`, `b`, `0`, `c`."""
    return tuple(part for part in re.split(r"[.\[\]]+", key) if part)


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every value below a node, and the node itself first."""
    yield path, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from walk(child, (*path, key))
    elif isinstance(node.value, list):
        for index, item in enumerate(node.value):
            yield from walk(item, (*path, index))


def child_of(node: Node, part: Key) -> tuple[Key, Node] | None:
    """The entry of a mapping, or the item of a list, that one part of a written key means."""
    if isinstance(node.value, dict):
        if part in node.value:
            return part, node.value[part]
        return next(((key, child) for key, child in node.value.items() if str(key) == str(part)), None)
    if isinstance(node.value, list) and str(part).isdigit() and int(part) < len(node.value):
        return int(part), node.value[int(part)]
    return None


def step(node: Node, parts: Path) -> tuple[Key, int, Node] | None:
    """One step down along a written key: the entry, how many parts it takes, and its value.

    Keys may hold dots themselves (`gpt-4.1`), so parts are joined where the first one leads nowhere.
    """
    for count in range(1, len(parts) + 1):
        found = child_of(node, parts[0] if count == 1 else dotted(parts[:count]))
        if found:
            return found[0], count, found[1]
    return None


def locate(node: Node, parts: Path) -> Path | None:
    """The path that a written key means; None where nothing is there."""
    path: Path = ()
    while parts:
        found = step(node, parts)
        if found is None:
            return None
        key, used, node = found
        path, parts = (*path, key), parts[used:]
    return path


def at(node: Node, path: Path) -> Node:
    """The value at a path that `locate` or `walk` gave."""
    for part in path:
        found = child_of(node, part)
        if found is None:
            raise KeyError(dotted(path))
        node = found[1]
    return node


def find(node: Node, parts: Path) -> Node | None:
    """The value that a written key means; None where nothing is there."""
    path = locate(node, parts)
    return None if path is None else at(node, path)


def replaced(node: Node, path: Path, new: Node | None) -> Node:
    """The tree with one existing value replaced, or taken out."""
    head, rest = path[0], path[1:]
    if isinstance(node.value, list):
        index = int(str(head))
        middle = [replaced(node.value[index], rest, new)] if rest else [new] if new else []
        return Node([*node.value[:index], *middle, *node.value[index + 1 :]], node.origin)
    if rest:
        return Node({**node.mapping, head: replaced(node.mapping[head], rest, new)}, node.origin)
    return node.without(head) if new is None else Node({**node.mapping, head: new}, node.origin)


def merge(base: Node, over: Node, root: Node | None = None) -> Node:
    """Lay one tree over another: mappings join, anything else is replaced, `???` replaces nothing.

    A mapping laid over `${a.b}` is laid over what stands at `a.b` in `root`, as OmegaConf does.
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
    """Where each dotted key below a node was written; "" is the node itself.

    With the `root` that references lead from, a value that is nothing but `${a.b}` is told where `a.b` was written:
    that is the place to mend it.
    """
    return {dotted(path): (referred(found, root) if root else found).origin for path, found in walk(node)}


def referred(node: Node, root: Node) -> Node:
    """What a value that is nothing but `${a.b}` leads to in the end; the value itself where it leads nowhere."""
    seen = [node]
    while isinstance(seen[-1].value, str) and (reference := REFERENCE.match(seen[-1].value)):
        target = None if reference[1].startswith(".") else find(root, split_key(reference[1]))
        if target is None or target in seen:
            return node
        seen.append(target)
    return seen[-1]
