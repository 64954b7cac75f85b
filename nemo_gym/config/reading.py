"""Read one YAML file into a tree with line numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from nemo_gym.config.models import Origin
from nemo_gym.config.tree import Key, Node
from nemo_gym.errors import ConfigPathNotFoundError, ConfigSyntaxError, DuplicateServerError

try:
    from yaml import CSafeLoader as BaseLoader
except ImportError:
    # Use the slower loader if PyYAML was built without libyaml.
    from yaml import SafeLoader as BaseLoader  # type: ignore[assignment]

_MERGE_TAG = "tag:yaml.org,2002:merge"
_FLOAT = r"""^(?:
     [-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$"""

_HINTS = {
    "mapping values are not allowed": "Quote a value that contains ': '; otherwise check the indentation and the line "
    "above, which may lack a ':'.",
    "cannot start any token": "Indent with spaces, not tabs, and quote a value that begins with a special character.",
    "did not find expected key": "Check the indentation of this line and the previous one, and unclosed quotes.",
    "could not find expected ':'": "Write each line of a mapping as `key: value`, with the colon and the space.",
    "did not find expected ',' or": "Close the bracket or brace, and quote any ${…} inside it.",
    "did not find expected '-' indicator": "Begin every item of a list with '- ' in the same column.",
    "unexpected end of stream": "Close the quote, bracket or brace.",
    "did not find expected node content": "Quote ??? and other special characters inside {braces} and [brackets].",
    "undefined alias": "Define the anchor (&name) of an alias (*name) earlier in the same file.",
    "could not determine a constructor": "Remove the tag (!word), or quote a text that begins with '!'.",
    "expected a single document": "Keep one document per file: remove the line '---'.",
}


class _Loader(BaseLoader):
    """A YAML loader that reads scalars as OmegaConf does: `1e-3` is a number, and dates are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in BaseLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT, re.X), list("-+0123456789."))


def shown(path: Path) -> str:
    """Return a path for messages: relative if it is inside the working folder, and unchanged otherwise."""
    working = Path.cwd()
    return str(path.relative_to(working)) if path.is_relative_to(working) else str(path)


def read_yaml(path: Path) -> Node:
    """Return the tree of one file. The tree of an empty file is an empty mapping.

    Raise ConfigSyntaxError if the file is not valid YAML or not a mapping. Raise DuplicateServerError if a top-level
    block occurs twice, and ConfigPathNotFoundError if the file cannot be opened.
    """
    name = shown(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigSyntaxError(f"{name}: not a UTF-8 text file ({error}). Save it as UTF-8.") from error
    except OSError as error:
        raise ConfigPathNotFoundError(
            f"{name}: cannot read the file: {os.strerror(error.errno or 0)}. Check its path and permissions."
        ) from error
    try:
        return _Builder(name, _Loader(text)).tree()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(name, error) from error
    except yaml.YAMLError as error:
        raise ConfigSyntaxError(f"{name}: not valid YAML: {error}.") from error


def _syntax_error(name: str, error: yaml.MarkedYAMLError) -> ConfigSyntaxError:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    context = f" ({error.context})" if error.context else ""
    problem = error.problem or "it cannot be parsed"
    hint = next((hint for sign, hint in _HINTS.items() if sign in f"{problem} {error.context}"), "")
    return ConfigSyntaxError(f"{place}: not valid YAML: {problem}{context}. {hint}".rstrip())


class _Builder:
    """A converter from PyYAML nodes to `Node`s with their file and line."""

    def __init__(self, name: str, loader: _Loader) -> None:
        self._name = name
        self._loader = loader
        self._open: set[int] = set()

    def tree(self) -> Node:
        top = self._loader.get_single_node()
        if top is None:
            return Node({}, Origin(self._name, 1))
        if not isinstance(top, yaml.MappingNode):
            kind = "a list" if isinstance(top, yaml.SequenceNode) else "a single value"
            raise ConfigSyntaxError(
                f"{self._at(top)}: the top level of a configuration file must be a mapping (lines of `key: value`), "
                f"but is {kind}."
            )
        return self._node(top, self._at(top), ())

    def _at(self, node: yaml.Node) -> Origin:
        return Origin(self._name, node.start_mark.line + 1)

    def _node(self, node: yaml.Node, origin: Origin, path: tuple[str, ...]) -> Node:
        if isinstance(node, yaml.ScalarNode):
            return Node(self._scalar(node), origin)
        if not str(node.tag).endswith((":map", ":seq")):
            raise ConfigSyntaxError(f"{self._at(node)}: the tag {node.tag} is not supported; remove it.")
        if id(node) in self._open:
            raise ConfigSyntaxError(f"{self._at(node)}: this anchor contains an alias to itself; remove the alias.")
        self._open.add(id(node))
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._items(node, path)
        self._open.discard(id(node))
        return Node(value, origin)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            # PyYAML does not check that a value fits its tag, as in `!!int abc`, or that `0x_` has digits.
            kind = node.tag.rpartition(":")[2]
            raise ConfigSyntaxError(
                f"{self._at(node)}: {node.value!r} is not a valid {kind} ({error}). Correct it, or quote it as text."
            ) from error

    def _items(self, node: yaml.Node, path: tuple[str, ...]) -> list[Node]:
        return [self._node(item, self._at(item), (*path, str(index))) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[Key, Node]:
        merged: dict[Key, Node] = {}
        own: dict[Key, Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                merged = {**self._merged(value_node, path), **merged}
                continue
            key = self._key(key_node)
            if key in own:
                raise self._duplicate((*path, str(key)), own[key], value_node, self._at(key_node))
            own[key] = self._node(value_node, self._at(key_node), (*path, str(key)))
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: tuple[str, ...]) -> dict[Key, Node]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        entries: dict[Key, Node] = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise ConfigSyntaxError(f"{self._at(source)}: '<<' needs a mapping, or a list of mappings.")
            entries = {**self._node(source, self._at(source), path).mapping, **entries}
        return entries

    def _key(self, node: yaml.Node) -> Key:
        key: Any = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if key is None:
            raise ConfigSyntaxError(
                f"{self._at(node)}: a key must be a single word, but this one is empty, a list or a mapping. "
                "Put text that contains {braces} or [brackets] in quotes."
            )
        return key  # type: ignore[no-any-return]

    def _duplicate(self, path: tuple[str, ...], first: Node, second: yaml.Node, origin: Origin) -> Exception:
        message = (
            f"{origin}: duplicate key '{'.'.join(path)}', first defined at {first.origin}. Join the two blocks, or "
            "rename one."
        )
        are_blocks = len(path) == 1 and isinstance(second, yaml.MappingNode) and bool(first.mapping)
        return DuplicateServerError(message) if are_blocks else ConfigSyntaxError(message)
