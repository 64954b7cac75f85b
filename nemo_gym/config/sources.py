"""Find the sources of a configuration and merge them in order."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.foreign import DELETE
from nemo_gym.config.interpolation import Resolver
from nemo_gym.config.models import Origin
from nemo_gym.config.overrides import Override, apply_override, parsed
from nemo_gym.config.reading import read_yaml, shown
from nemo_gym.config.removed import removed_path
from nemo_gym.config.settings import DUMMY_MODEL, MODEL_TIER, POLICY_MODEL, SERVER_TYPES
from nemo_gym.config.tree import Key, Node, merge, node_of, walk
from nemo_gym.errors import ConfigPathNotFoundError, MalformedConfigPathsError, OverrideError
from nemo_gym.paths import search_roots
from nemo_gym.text import CERTAINLY_MEANT, closest

logger = logging.getLogger(__name__)

CONFIG_PATHS = "config_paths"
ENV_YAML = "env.yaml"
_NAME_IN_REFERENCE = re.compile(r"(?<=[{:,\s])[A-Za-z_]\w*")
STAND_IN = Origin("the stand-in model", 0)
_MAX_CANDIDATES = 3000
"""The number of scanned files and folders after which the search for a similar path ends."""


@dataclass(frozen=True, slots=True)
class EnvYaml:
    """The result of the search for `env.yaml`."""

    path: Path | None
    searched: tuple[Path, ...]
    """The searched paths. Empty if the search was skipped."""
    tree: Node


@dataclass(frozen=True, slots=True)
class Sources:
    """The merged sources of a configuration, before directives are applied and interpolations are resolved."""

    tree: Node
    files: tuple[str, ...]
    env: EnvYaml
    defined: frozenset[str]
    """The top-level keys that the sources other than the command line define."""
    surroundings: Mapping[str, frozenset[str]]
    """For each included file: the files that include it, and all files that those files include."""


def gather(
    paths: Sequence[str | Path],
    given: Sequence[Override | str],
    initial: Mapping[str, object] | None,
    dotenv_path: Path | None,
    skip_dotenv: bool,
    *,
    stand_in: Mapping[str, object] | None = None,
) -> Sources:
    """Read all sources in ascending priority: `stand_in`, files, `env.yaml`, `initial`, the command line."""
    overrides = parsed(given)
    named, settings = _config_paths_among(overrides), [one for one in overrides if one.path[0] != CONFIG_PATHS]
    env = _read_env_yaml(dotenv_path, skip_dotenv)
    start = node_of(_as_mapping(initial or {}), Origin("the initial configuration", 0))

    listed = [Node(str(path), Origin(CONFIG_PATHS, 0)) for path in paths]
    files = _Files(_hints(env.tree, start, settings))
    listed += [item for node in named for item in files.items(node)]
    for item in listed or files.config_paths_of(start) or files.config_paths_of(env.tree):
        files.read(item, near=None)

    tree = Node({}, Origin("the configuration", 0))
    parts = [*files.trees(), env.tree, start]
    if stand_in and not any(POLICY_MODEL in part.mapping for part in parts):
        parts.insert(0, node_of(stand_in, STAND_IN))
    for part in parts:
        tree = merge(tree, part.without(CONFIG_PATHS), tree)
    defined = frozenset(map(str, tree.mapping))
    for override in settings:
        tree = apply_override(tree, override)
    if files.names:
        tree = tree.updated(config_paths=node_of(files.names, Origin("the configuration", 0)))
    return Sources(tree, tuple(files.names), env, defined, files.surroundings())


def known_keys(paths: Sequence[str], overrides: Sequence[Override | str]) -> set[str]:
    """Return the top-level keys that the files define, and the names in `${…}` references of files and overrides."""
    sources = gather(paths, overrides, None, None, skip_dotenv=False)
    texts = (node.value for _, node in walk(sources.tree) if isinstance(node.value, str) and "${" in node.value)
    return {*sources.defined, *(name for text in texts for name in _NAME_IN_REFERENCE.findall(text))}


def _as_mapping(initial: Mapping[str, object]) -> Mapping[str, object]:
    """Convert an OmegaConf mapping to plain data with unresolved interpolations. Return a dict unchanged."""
    if isinstance(initial, dict):
        return initial
    # Import OmegaConf here, because importing it is slow.
    from omegaconf import OmegaConf

    known: Any = OmegaConf.to_container(initial) if OmegaConf.is_config(initial) else dict(initial)
    return known  # type: ignore[no-any-return]


def _config_paths_among(overrides: Sequence[Override]) -> list[Node]:
    """Return the values of all `+config_paths=[…]` arguments, in order."""
    found: list[Node] = []
    for override in overrides:
        if override.path[0] != CONFIG_PATHS:
            continue
        if override.value is None or len(override.path) > 1:
            raise OverrideError(
                f"'{override.word}': config_paths must be set as a whole: --config a.yaml --config b.yaml."
            )
        found.append(override.value)
    return found


def _is_misspelt_config_paths(key: str) -> bool:
    # A name such as `my_config_paths` is a variable for `+config_paths=${my_config_paths}`.
    is_variable = re.search(rf"(^|_){CONFIG_PATHS}(_|$)", key)
    return not is_variable and closest(CONFIG_PATHS, [key], CERTAINLY_MEANT) is not None


def _items(node: Node) -> list[Node]:
    """Return the paths in a `config_paths` value, each with its origin."""
    if node.value is None:
        return []
    if not isinstance(node.value, list):
        given = f"'{node.value}'; write [{node.value}]" if isinstance(node.value, str) else "not a list"
        raise MalformedConfigPathsError(
            f"{node.origin}: config_paths must be a list of paths, such as [a.yaml, b.yaml], but is {given}."
        )
    for item in node.value:
        if not isinstance(item.value, str) or not item.value.strip():
            raise MalformedConfigPathsError(
                f"{item.origin}: every item of config_paths must be the path of a YAML file, but one is "
                f"{'a mapping or a list' if isinstance(item.value, dict | list) else repr(item.value)}."
            )
    return node.value


def _hints(env: Node, start: Node, settings: Sequence[Override]) -> Node:
    """Return the values that are known before reading files, for paths such as `configs/${flavor}.yaml`."""
    known = merge(env, start)
    for override in settings:
        if override.action == "set" and override.value and len(override.path) == 1:
            known = known.updated(**{override.path[0]: override.value})
    return known.without(CONFIG_PATHS)


def _read_env_yaml(dotenv_path: Path | None, skip: bool) -> EnvYaml:
    nothing = Node({}, Origin(ENV_YAML, 0))
    if skip:
        return EnvYaml(None, (), nothing)
    # Do not raise an error if `dotenv_path` does not exist, because frameworks pass the path without checking it.
    places = (dotenv_path,) if dotenv_path is not None else tuple(root / ENV_YAML for root in search_roots())
    found = next((place for place in places if place.is_file()), None)
    return EnvYaml(found, places, read_yaml(found) if found else nothing)


class _Files:
    """The files of an include tree in order: includes come before the file that includes them."""

    def __init__(self, known: Node) -> None:
        self.names: list[str] = []
        self._known = known
        self._read: dict[Path, Node] = {}
        self._depths: dict[Path, int] = {}
        """The include depth of each file: 0 if it is listed directly, 1 if a file of depth 0 includes it, etc."""
        self._open: list[Path] = []
        self._included: dict[Path, list[Path]] = {}

    def trees(self) -> list[Node]:
        """Return the content of each file, without the servers that a less deeply included file replaces.

        A server replaces another one if both have the same name but different implementations. A file can thus
        include a default model, and another file can define the model to use instead.
        """
        trees: list[Node] = []
        for path, tree in self._read.items():
            outer = [other for at, other in self._read.items() if self._depths[at] < self._depths[path]]
            replaced = [
                name for name, block in tree.mapping.items() if any(_replaces(each, name, block) for each in outer)
            ]
            trees.append(tree.without(*replaced) if replaced else tree)
        return trees

    def surroundings(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for path, depth in self._depths.items():
            if depth:
                includers = [other for other, included in self._included.items() if path in included]
                found[shown(path)] = frozenset(map(shown, self._below(includers)))
        return found

    def _below(self, paths: Iterable[Path]) -> set[Path]:
        """Return these files and all files that they include, directly or indirectly."""
        found: set[Path] = set()
        owed = list(paths)
        while owed:
            if (path := owed.pop()) not in found:
                found.add(path)
                owed += self._included.get(path, ())
        return found

    def read(self, item: Node, near: Path | None) -> None:
        """Read a file and its includes, unless it was already read. `near` is the folder of the including file."""
        path = _find_config(item, str(item.value), near)
        if path in self._open:
            cycle = " -> ".join(shown(one) for one in [*self._open[self._open.index(path) :], path])
            logger.warning("%s: files include each other (%s); each is loaded once", item.origin, cycle)
            return
        if self._open:
            self._included.setdefault(self._open[-1], []).append(path)
        self._depths[path] = min(len(self._open), self._depths.get(path, len(self._open)))
        if path in self._read:
            logger.info("%s: %s is listed twice; it is loaded once", item.origin, shown(path))
            return
        self._open.append(path)
        tree = read_yaml(path)
        for included in self.config_paths_of(tree):
            self.read(included, near=path.parent)
        self._open.pop()
        self._read[path] = tree
        self.names.append(shown(path))

    def config_paths_of(self, tree: Node) -> list[Node]:
        """Return the paths under `config_paths` in a file. Raise MalformedConfigPathsError if the key is misspelt."""
        if CONFIG_PATHS in tree.mapping:
            return self.items(tree.mapping[CONFIG_PATHS])
        for key, node in tree.mapping.items():
            if isinstance(node.value, list) and _is_misspelt_config_paths(str(key)):
                raise MalformedConfigPathsError(f"{node.origin}: nothing reads {key}. Did you mean '{CONFIG_PATHS}'?")
        return []

    def items(self, node: Node) -> list[Node]:
        """Return the paths in a `config_paths` value, each with its origin.

        A `${…}` is replaced by the path or the list of paths to which it refers.
        """
        found: list[Node] = []
        for item in _items(self._resolved(node)):
            resolved = self._resolved(item)
            found += [resolved] if isinstance(resolved.value, str) else _items(resolved)
        return found

    def _resolved(self, node: Node) -> Node:
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        key = "config path"
        return node_of(Resolver(self._known.updated(**{key: node})).value((key,)), node.origin)


def _replaces(outer: Node, name: Key, block: Node) -> bool:
    """Return whether `outer` replaces the server `name` of an included file with another implementation.

    An included dummy model is never replaced, because `join_dummy_models` merges it into the real model later.
    """
    defined = _implementations(outer.mapping[name]) if name in outer.mapping else set()
    known = _implementations(block)
    return bool(defined and known) and defined.isdisjoint(known) and (MODEL_TIER, DUMMY_MODEL) not in known


def _implementations(block: Node) -> set[tuple[Key, Key]]:
    tiers = {tier: node for tier, node in block.mapping.items() if tier in SERVER_TYPES}
    return {(tier, key) for tier, node in tiers.items() for key in node.mapping if key != DELETE}


def _find_config(item: Node, text: str, near: Path | None) -> Path:
    """Return the file at a path in the first search root that contains it, or else in the folder `near`."""
    relative = Path(text).expanduser()
    roots = [Path()] if relative.is_absolute() else [*search_roots(), *([near] if near else [])]
    places = list(dict.fromkeys(root / relative for root in roots))
    for place in places:
        if place.is_file():
            return place.resolve()
    folder = next((place for place in places if place.is_dir()), None)
    if folder:
        inside = sorted(file.name for file in folder.glob("*.yaml"))
        # If the folder is a server folder, suggest the files in its subfolder `configs`.
        deeper = sorted(str(relative / file.relative_to(folder)) for file in folder.glob("configs/*.yaml"))
        listed = ", ".join((inside or deeper)[:8])
        raise ConfigPathNotFoundError(
            f"{item.origin}: {text} is a folder. Name one of its files"
            + (f": {listed}." if listed else "; none of them is a .yaml file.")
        )
    words = text.split()
    if len(words) > 1 and all(word.endswith((".yaml", ".yml")) for word in words):
        raise ConfigPathNotFoundError(
            f"{item.origin}: the file '{text}' does not exist. Put commas between the paths: [{', '.join(words)}]."
        )
    searched = ", ".join(str(place) for place in places)
    raise ConfigPathNotFoundError(
        f"{item.origin}: the file {text} does not exist (looked for {searched})."
        f"{removed_path(relative) or _similar_file(relative, roots)}"
    )


def _similar_file(wanted: Path, roots: Sequence[Path]) -> str:
    """Return a suggestion with the most similar path of a YAML file in or below the searched folders."""
    for root in roots:
        nearest = next(parent for parent in (root / wanted).parents if parent.is_dir())
        for base in dict.fromkeys([nearest, *([] if wanted.is_absolute() else [root])]):
            files = list(_yaml_files(base))
            names = {str(file) if wanted.is_absolute() else os.path.relpath(file, root): file for file in files}
            of_one_stem = [name for name, file in names.items() if file.stem == wanted.stem]
            guess = closest(str(wanted), of_one_stem, cutoff=0.0) or closest(str(wanted), names, cutoff=0.75)
            if guess:
                return f" Did you mean '{guess}'?"
    return ""


def _yaml_files(base: Path) -> Iterator[Path]:
    seen = 0
    for folder, folders, files in os.walk(base):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")) and name != "node_modules")
        for name in files:
            if name.endswith((".yaml", ".yml")):
                yield Path(folder, name)
        seen += len(files) + len(folders)
        if seen > _MAX_CANDIDATES:
            return
