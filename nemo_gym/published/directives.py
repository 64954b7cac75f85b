"""Apply the directives `_inherit_from`, `_copy` and `_delete_key` of configuration blocks."""

from __future__ import annotations

from typing import NamedTuple

from nemo_gym.config.foreign import COPY, DELETE, INHERIT, STRING_FORM
from nemo_gym.config.models import Origin
from nemo_gym.config.tree import (
    UNSET,
    Key,
    Node,
    Path,
    at,
    dotted,
    find,
    locate,
    merge,
    node_of,
    plain,
    replaced,
    split_key,
    step,
    walk,
)  # fmt: skip
from nemo_gym.errors import ConfigError, InheritPathNotFoundError
from nemo_gym.text import did_you_mean

LONGEST_CHAIN = 20
"""The maximum length of a chain of blocks that inherit from each other. A longer chain is assumed to be a cycle."""


def follow_directives(tree: Node) -> Node:
    """Return the tree with every directive applied and the sources of `_inherit_from` removed.

    The order of the blocks does not matter, because all sources are expanded before any of them is removed. Raise
    ConfigError if blocks inherit from each other in a cycle, and InheritPathNotFoundError if a source is missing.
    """
    run = _Run(tree)
    result = run.expanded(tree, ())
    for source in sorted(run.taken, key=len, reverse=True):
        path = locate(result, source)
        if path:
            result = replaced(result, path, None)
    return result


class _Directive:
    """A directive of a block or value: the source to inherit from, and whether to remove that source."""

    def __init__(self, source: Node, text: str, is_move: bool) -> None:
        self.origin: Origin = source.origin
        self.text = text
        self.parts = split_key(text)
        self.is_move = is_move


def _directive_of(node: Node, path: Path) -> _Directive | None:
    if isinstance(node.value, str):
        match = STRING_FORM.match(node.value)
        return _Directive(node, match[2], match[1] == "inherit_from") if match else None
    found = [name for name in (INHERIT, COPY) if name in node.mapping]
    if not found:
        return None
    if len(found) == 2:
        raise ConfigError(
            f"{node.mapping[COPY].origin}: {dotted(path)} has both {INHERIT} ({node.mapping[INHERIT].origin}) and "
            f"{COPY}. Keep one: {INHERIT} removes the source block, {COPY} keeps it."
        )
    source = node.mapping[found[0]]
    if not isinstance(source.value, str) or not source.value.strip():
        raise ConfigError(
            f"{source.origin}: {dotted((*path, found[0]))} must be the dotted path of another block, such as "
            f"`{found[0]}: some_server`, but is {plain(source)!r}."
        )
    return _Directive(source, source.value.strip(), found[0] == INHERIT)


def _without_named(block: Node) -> dict[Key, Node]:
    """Return the entries of a block without `_delete_key` and without the keys that it lists.

    A missing key is not an error, because the file that defines it may not be part of this configuration.
    """
    result = block.without(DELETE)
    for key in _names_in(block.mapping[DELETE]):
        if place := locate(result, split_key(key)):
            result = replaced(result, place, None)
    return result.mapping


def _names_in(deleted: Node) -> list[str]:
    """Return the keys that a `_delete_key` lists, either as a list or separated by commas."""
    named = deleted.value if isinstance(deleted.value, list) else [deleted]
    return [key.strip() for item in named for key in str(item.value).split(",") if key.strip()]


class _Run:
    """One pass over a tree. It records the finished blocks, and also the blocks in progress, to detect cycles."""

    def __init__(self, tree: Node) -> None:
        self.taken: set[Path] = set()
        self._tree = tree
        self._done: dict[Path, Node] = {}
        self._in_progress: dict[Path, Origin] = {}

    def expanded(self, node: Node, path: Path) -> Node:
        """Return the value at a path with all its directives applied."""
        if path not in self._done:
            self._done[path] = self._expand(node, path)
        return self._done[path]

    def _expand(self, node: Node, path: Path) -> Node:
        directive = _directive_of(node, path)
        if directive is None:
            return self._children_expanded(node, path)
        if path in self._in_progress:
            raise self._cycle(path)
        self._in_progress[path] = directive.origin
        result = self._inherited(node, path, directive)
        del self._in_progress[path]
        return result

    def _children_expanded(self, node: Node, path: Path) -> Node:
        if isinstance(node.value, dict):
            kept = _without_named(node) if DELETE in node.value else node.value
            return Node({key: self.expanded(child, (*path, key)) for key, child in kept.items()}, node.origin)
        if isinstance(node.value, list):
            return Node([self.expanded(item, (*path, index)) for index, item in enumerate(node.value)], node.origin)
        return node

    def _inherited(self, node: Node, path: Path, directive: _Directive) -> Node:
        source = self._source(path, directive)
        if directive.is_move:
            self.taken.add(directive.parts)
        if source.is_unset:
            return Node(UNSET, node.origin)
        if isinstance(node.value, str):
            return Node(source.value, node.origin)
        own = self._children_expanded(node.without(INHERIT, COPY, DELETE), path)
        if not own.mapping and DELETE not in node.mapping:
            return Node(source.value, node.origin)
        result = merge(source, own, self._tree)
        if result is own and source.value is not None:
            raise ConfigError(
                f"{directive.origin}: {dotted(path)} adds keys to '{directive.text}', which is not a mapping "
                f"({source.origin}). Inherit from a block, or remove the added keys."
            )
        return self._without_deleted(Node(result.value, node.origin), node.mapping.get(DELETE), path)

    def _source(self, path: Path, directive: _Directive) -> Node:
        """Return the source of a directive, looked up in the original tree."""
        node = self._tree
        parts: Path = directive.parts
        keys: Path = ()
        while parts:
            if keys and _directive_of(node, keys):
                if found := find(self._checked(node, keys), parts):
                    return found
                raise self._missing(path, directive)
            below = step(node, parts)
            if below is None:
                raise self._missing(path, directive)
            node = below.node
            keys, parts = (*keys, below.key), parts[below.used :]
        return self._checked(node, keys)

    def _checked(self, node: Node, path: Path) -> Node:
        """Return the expanded source. Raise ConfigError if a block would become its own source."""
        if any(one[: len(path)] == path for one in self._in_progress):
            raise self._cycle(path)
        return self.expanded(node, path)

    def _cycle(self, path: Path) -> ConfigError:
        chain = list(self._in_progress)
        start = next(index for index, one in enumerate(chain) if one[: len(path)] == path)
        links = [f"{dotted(one)} ({self._in_progress[one]})" for one in chain[start:]]
        return ConfigError(
            f"{self._in_progress[chain[start]]}: blocks inherit from each other in a cycle: "
            f"{' -> '.join([*links, dotted(path)])}. Remove one of the directives."
        )

    def _missing(self, path: Path, directive: _Directive) -> InheritPathNotFoundError:
        known = [
            dotted(one) for one, node in walk(self._tree) if one and len(one) <= len(directive.parts) and node.mapping
        ]
        return InheritPathNotFoundError(
            f"{directive.origin}: {dotted(path)} inherits from '{directive.text}', which is not defined."
            f"{did_you_mean(directive.text, known) or ' Add the file that defines it to config_paths.'}"
        )

    def _without_deleted(self, result: Node, deleted: Node | None, path: Path) -> Node:
        if deleted is None:
            return result
        for key in _names_in(deleted):
            place = locate(result, split_key(key))
            if not place:
                raise InheritPathNotFoundError(
                    f"{deleted.origin}: {dotted((*path, DELETE))} lists '{key}', which is neither in the block nor "
                    f"inherited.{did_you_mean(key, map(str, result.mapping))}"
                )
            result = replaced(result, place, None)
        return result


class Inherited(NamedTuple):
    holder: Path
    """The innermost block that inherits a key."""
    rest: Path
    """The key's path below that block."""


def inheriting(tree: Node, parts: Path, depth: int = 0) -> Inherited | None:
    """Return the block above a key that will inherit the key, directly or through other blocks."""
    for count in range(len(parts) - 1, 0, -1):
        holder = locate(tree, parts[:count])
        source = _named_source(at(tree, holder)) if holder is not None else None
        if holder is not None and source and _will_exist(tree, (*source, *parts[count:]), depth + 1):
            return Inherited(holder, parts[count:])
    return None


def _named_source(block: Node) -> tuple[str, ...] | None:
    for name in (INHERIT, COPY):
        source = block.mapping.get(name)
        if source is not None and isinstance(source.value, str):
            return split_key(source.value)
    return None


def _will_exist(tree: Node, parts: Path, depth: int) -> bool:
    if locate(tree, parts) is not None:
        return True
    return depth < LONGEST_CHAIN and inheriting(tree, parts, depth) is not None


def without_inherited(tree: Node, parts: Path, origin: Origin) -> Node:
    """Return the tree with an inherited key in the `_delete_key` of the block that would inherit it."""
    found = inheriting(tree, parts)
    if found is None:
        return tree
    holder, rest = found
    block = at(tree, holder)
    dropped = plain(block.mapping[DELETE]) if DELETE in block.mapping else []
    dropped = dropped.split(",") if isinstance(dropped, str) else list(dropped)
    block = block.updated(**{DELETE: node_of([*dropped, dotted(rest)], origin)})
    return replaced(tree, holder, block) if holder else block
