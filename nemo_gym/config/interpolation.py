"""Resolve `${…}` interpolations and explain the ones that cannot be resolved.

OmegaConf is imported inside functions, because importing it is slow, and only values with interpolations need it.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from nemo_gym.config.masking import mask_text
from nemo_gym.config.models import Origin
from nemo_gym.config.tree import Node, Path, at, dotted, find, locate, origins, plain, split_key, walk
from nemo_gym.errors import ConfigInterpolationError
from nemo_gym.text import closest, did_you_mean

if TYPE_CHECKING:
    from omegaconf import DictConfig

_REFERENCE = re.compile(r"(?<!\\)\$\{\s*([^${}:,]+?)\s*\}")
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*([^,${}]+?)\s*\}")
_RESOLVER = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
_PREFIXES = ("oc.env", "oc.select", "oc.decode", "oc.create", "oc.dict.keys", "oc.dict.values", "inherit_from", "copy")


class Unresolved(NamedTuple):
    """A configuration value that cannot be resolved, with the reason."""

    path: Path
    problem: str
    """The reason, as a message that starts with the file and line."""
    undefined: str | None
    """The top-level key that is not defined, if this is why the value cannot be resolved."""
    lacks_variable: bool = False
    """Whether the reason is an environment variable that is not set."""


class _Cause(NamedTuple):
    sentence: str
    undefined: str | None = None
    lacks_variable: bool = False


class _CannotResolveError(Exception):
    """The error for a value that OmegaConf cannot resolve, with OmegaConf's message."""


class Resolved(NamedTuple):
    """A plain value with None in place of its unresolvable parts."""

    value: object
    unresolved: list[Unresolved]


class Resolver:
    """Lazy resolver of one merged tree: only requested values must be resolvable."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree

    def value(self, path: Path) -> object:
        """Return the plain value at a path. Raise ConfigInterpolationError if any part of it cannot be resolved."""
        found, unresolved = self.resolve(path)
        if unresolved:
            raise ConfigInterpolationError("\n".join(one.problem for one in unresolved))
        return found

    def resolve(self, path: Path) -> Resolved:
        """Return the plain value at a path, and its unresolvable parts."""
        unresolved: list[Unresolved] = []
        return Resolved(self._resolved_tree(at(self._tree, path), path, unresolved), unresolved)

    def origins(self, path: Path) -> dict[str, Origin]:
        """Return the file and line of each value below a path. For a `${…}` reference, return those of its target."""
        return origins(at(self._tree, path), self._tree)

    def _resolved_tree(self, node: Node, path: Path, unresolved: list[Unresolved]) -> object:
        if isinstance(node.value, dict):
            return {key: self._resolved_tree(child, (*path, key), unresolved) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self._resolved_tree(item, (*path, index), unresolved) for index, item in enumerate(node.value)]
        if not isinstance(node.value, str) or "${" not in node.value:
            return node.value
        try:
            return self._resolved(path)
        except _CannotResolveError as error:
            unresolved.append(self._why(path, str(error)))
            return None

    @cached_property
    def _config(self) -> DictConfig:
        from omegaconf import OmegaConf
        from omegaconf.errors import GrammarParseError

        try:
            config: DictConfig = OmegaConf.create(plain(self._tree), flags={"allow_objects": True})
            return config
        except GrammarParseError as error:
            raise self._malformed() from error

    def _malformed(self) -> ConfigInterpolationError:
        from omegaconf import OmegaConf
        from omegaconf.errors import GrammarParseError

        for path, node in walk(self._tree):
            try:
                if isinstance(node.value, str) and "${" in node.value:
                    OmegaConf.create({"value": node.value})
            except GrammarParseError as error:
                return ConfigInterpolationError(
                    f"{node.origin}: {dotted(path)} contains an invalid interpolation "
                    f"({str(error).splitlines()[0]}). Close its brace, or write '\\${{' for a literal '${{'."
                )
        return ConfigInterpolationError("The configuration contains an invalid interpolation.")

    def _resolved(self, path: Path) -> object:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            container: Any = self._config
            for part in path:
                container = container[part]
            is_container = OmegaConf.is_config(container)
            return OmegaConf.to_container(container, resolve=True) if is_container else container
        except OmegaConfBaseException as error:
            raise _CannotResolveError(str(error).splitlines()[0]) from error

    def _why(self, path: Path, reason: str) -> Unresolved:
        """Return why a value cannot be resolved, and the chain of references from the value to the cause.

        `reason` is OmegaConf's message, which is shown if no better explanation is found.
        """
        start = f"{at(self._tree, path).origin}: {dotted(path)}"
        trail = [path]
        while not isinstance(cause := self._cause(trail[-1], reason), _Cause):
            if cause in trail:
                cycle = " -> ".join(map(dotted, [*trail[trail.index(cause) :], cause]))
                return Unresolved(path, f"{start} refers to itself: {cycle}.", None)
            trail.append(cause)
        ways = ", ".join(f"{dotted(one)} at {at(self._tree, one).origin}" for one in trail[1:])
        way = f", through {ways}," if ways else ""
        return Unresolved(path, f"{start}{way} {cause.sentence}", cause.undefined, cause.lacks_variable)

    def _cause(self, path: Path, reason: str) -> _Cause | Path:
        """Return why a value cannot be resolved, or the path of an unresolvable value to which it refers."""
        text = str(at(self._tree, path).value)
        for name in _ENVIRONMENT.findall(text):
            if name not in os.environ:
                return _Cause(
                    f"reads the environment variable {name}, which is not set. Set it (export {name}=…), or write "
                    f"a default: ${{oc.env:{name},…}}.",
                    lacks_variable=True,
                )
        for name in _REFERENCE.findall(text):
            target = _absolute(name, path)
            found = locate(self._tree, target)
            if found is None and not self._passes_interpolation(target):
                return self._undefined(name, target)
            if found is not None and (below := self._unresolvable_below(found)):
                return below
        resolver = next((name for name in _RESOLVER.findall(text) if reason.endswith(f"type {name}")), None)
        if resolver:
            return _Cause(f"uses ${{{resolver}:…}}, which does not exist.{did_you_mean(resolver, _PREFIXES)}")
        return _Cause(f"cannot be resolved: {mask_text(reason)}.")

    def _undefined(self, name: str, target: Path) -> _Cause:
        wanted = dotted(target)
        near = [(dotted(path), node) for path, node in walk(self._tree) if path and len(path) <= len(target) + 1]
        # Require a closer match for blocks than for values: policy_model_name is not a misspelling of policy_model.
        guess = closest(wanted, [key for key, node in near if not node.mapping], cutoff=0.7)
        guess = guess or closest(wanted, [key for key, node in near if node.mapping], cutoff=0.9)
        hint = f" Did you mean '{guess}'?" if guess else ""
        sentence = f"refers to ${{{name}}}, which is not defined.{hint}"
        return _Cause(sentence, wanted if len(target) == 1 else None)

    def _unresolvable_below(self, path: Path) -> Path | None:
        for below, node in walk(at(self._tree, path)):
            if isinstance(node.value, str) and "${" in node.value:
                try:
                    self._resolved((*path, *below))
                except _CannotResolveError:
                    return (*path, *below)
        return None

    def _passes_interpolation(self, target: Path) -> bool:
        """Return whether the path leads through an interpolation, which only OmegaConf can follow."""
        above = [find(self._tree, target[:count]) for count in range(1, len(target))]
        return any(node is not None and isinstance(node.value, str) and "${" in node.value for node in above)


def _absolute(reference: str, path: Path) -> Path:
    """Return the absolute path of a reference.

    One leading dot means the mapping that contains the reference. Each further dot means one level up.
    """
    name = reference.lstrip(".")
    dots = len(reference) - len(name)
    return (*path[: len(path) - dots], *split_key(name)) if dots else split_key(name)
