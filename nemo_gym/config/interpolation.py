"""Resolve `${…}`, and say in the user's words what a value that cannot be resolved points to.

OmegaConf takes longer to import than the rest of this package together, and every server process imports the
package for its settings: hence the imports inside functions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from nemo_gym.config.masking import mask_text
from nemo_gym.config.models import Origin
from nemo_gym.config.suggestions import closest, did_you_mean
from nemo_gym.config.tree import Node, Path, at, dotted, find, locate, origins, plain, split_key, walk
from nemo_gym.errors import ConfigInterpolationError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_REFERENCE = re.compile(r"(?<!\\)\$\{\s*([^${}:,]+?)\s*\}")
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\s*:\s*([^,${}]+?)\s*\}")
_RESOLVER = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
_RESOLVERS = (
    "oc.env",
    "oc.select",
    "oc.decode",
    "oc.create",
    "oc.dict.keys",
    "oc.dict.values",
    "inherit_from",
    "copy",
)


class Unresolved(NamedTuple):
    """A value that cannot be resolved, and why."""

    path: Path
    problem: str
    """One sentence that begins with the place."""
    undefined: str | None
    """The top-level key that would have to be defined, where that is the reason."""


@dataclass(frozen=True)
class _Cause:
    sentence: str
    undefined: str | None = None


class _CannotResolveError(Exception):
    """OmegaConf could not resolve a value; its own word is the message."""


class Resolver:
    """Resolves values of one merged tree, one by one, so that only what is asked for has to be resolvable."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree

    def value(self, path: Path) -> Any:
        """The plain value at a path, everything in it resolved. Raises ConfigInterpolationError."""
        found, unresolved = self.resolve(path)
        if unresolved:
            raise ConfigInterpolationError("\n".join(one.problem for one in unresolved))
        return found

    def resolve(self, path: Path) -> tuple[Any, list[Unresolved]]:
        """The plain value at a path, and all that could not be resolved in it (None stands in its place)."""
        unresolved: list[Unresolved] = []
        return self._plain(at(self._tree, path), path, unresolved), unresolved

    def origins(self, path: Path) -> dict[str, Origin]:
        """Where each value below a path was written; of a reference, where that was to which it leads."""
        return origins(at(self._tree, path), self._tree)

    def _plain(self, node: Node, path: Path, unresolved: list[Unresolved]) -> Any:
        if isinstance(node.value, dict):
            return {key: self._plain(child, (*path, key), unresolved) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self._plain(item, (*path, index), unresolved) for index, item in enumerate(node.value)]
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
                    f"{node.origin}: {dotted(path)} holds a '${{' that begins no interpolation "
                    f"({str(error).splitlines()[0]}). Close its brace, or write '\\${{' for the signs themselves."
                )
        return ConfigInterpolationError("An interpolation cannot be read.")

    def _resolved(self, path: Path) -> Any:
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

    def _why(self, path: Path, told: str) -> Unresolved:
        """Follow a value to what is missing; `told` is OmegaConf's own word, for all we do not know better."""
        start = f"{at(self._tree, path).origin}: {dotted(path)}"
        trail = [path]
        while not isinstance(cause := self._cause(trail[-1], told), _Cause):
            if cause in trail:
                circle = " -> ".join(map(dotted, [*trail[trail.index(cause) :], cause]))
                return Unresolved(path, f"{start} refers to itself: {circle}.", None)
            trail.append(cause)
        ways = ", ".join(f"{dotted(one)} at {at(self._tree, one).origin}" for one in trail[1:])
        way = f", by way of {ways}," if ways else ""
        return Unresolved(path, f"{start}{way} {cause.sentence}", cause.undefined)

    def _cause(self, path: Path, told: str) -> _Cause | Path:
        """Why one value cannot be resolved, or the value below which the reason lies."""
        text = str(at(self._tree, path).value)
        for name in _ENVIRONMENT.findall(text):
            if name not in os.environ:
                return _Cause(
                    f"reads the environment variable {name}, which is not set. Set it (export {name}=…), or write "
                    f"a default: ${{oc.env:{name},…}}."
                )
        for name in _REFERENCE.findall(text):
            target = _absolute(name, path)
            found = locate(self._tree, target)
            if found is None and not self._leads_through_text(target):
                return self._undefined(name, target)
            if found is not None and (below := self._unresolvable_below(found)):
                return below
        resolver = next((name for name in _RESOLVER.findall(text) if told.endswith(f"type {name}")), None)
        if resolver:
            return _Cause(f"uses ${{{resolver}:…}}, which does not exist.{did_you_mean(resolver, _RESOLVERS)}")
        return _Cause(f"cannot be resolved: {mask_text(told)}.")

    def _undefined(self, name: str, target: Path) -> _Cause:
        wanted = dotted(target)
        near = [(dotted(path), node) for path, node in walk(self._tree) if path and len(path) <= len(target) + 1]
        # A block has to be nearer than a value: policy_model_name is not a misspelt policy_model.
        guess = closest(wanted, [key for key, node in near if not node.mapping], cutoff=0.7)
        guess = guess or closest(wanted, [key for key, node in near if node.mapping], cutoff=0.9)
        hint = f" Did you mean '{guess}'?" if guess else ""
        sentence = f"refers to ${{{name}}}, which nothing defines.{hint}"
        return _Cause(sentence, wanted if len(target) == 1 else None)

    def _unresolvable_below(self, path: Path) -> Path | None:
        for below, node in walk(at(self._tree, path)):
            if isinstance(node.value, str) and "${" in node.value:
                try:
                    self._resolved((*path, *below))
                except _CannotResolveError:
                    return (*path, *below)
        return None

    def _leads_through_text(self, target: Path) -> bool:
        """Whether a part of the way is itself an interpolation, so that only OmegaConf can follow it."""
        above = [find(self._tree, target[:count]) for count in range(1, len(target))]
        return any(node is not None and isinstance(node.value, str) and "${" in node.value for node in above)


def _absolute(reference: str, path: Path) -> Path:
    """The key a reference means: one leading dot is the mapping it stands in, each further dot one above."""
    name = reference.lstrip(".")
    dots = len(reference) - len(name)
    return (*path[: len(path) - dots], *split_key(name)) if dots else split_key(name)
