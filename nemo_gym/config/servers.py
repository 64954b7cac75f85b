"""Build typed server configurations from the blocks of a merged tree."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.explain import METADATA_KEYS, explain_validation, near_misses
from nemo_gym.config.foreign import own_fields
from nemo_gym.config.interpolation import Resolver, Unresolved
from nemo_gym.config.models import DatasetConfig, Origin, ServerConfig
from nemo_gym.config.overrides import is_typed
from nemo_gym.config.ray import RayNeeds
from nemo_gym.config.removed import removed_path
from nemo_gym.config.run_settings import RESERVED_KEYS, RunSettings
from nemo_gym.config.server_folders import ServerFolder, nested_folders
from nemo_gym.config.settings import (
    DUMMY_MODEL,
    ENVIRONMENT_SERVERS,
    MODEL_TIER,
    POLICY_MODEL,
    SERVER_TYPES,
    Domain,
    ServerType,
)
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.config.tree import Node, dotted, merge
from nemo_gym.errors import AlmostServerError, DuplicateServerError, UnknownImplementationError
from nemo_gym.jsonl import JsonObject
from nemo_gym.paths import INSTALL_ROOT, find, search_roots
from nemo_gym.text import CERTAINLY_MEANT, closest, did_you_mean_or_all, search_dir_for

logger = logging.getLogger(__name__)
NO_MODEL: Mapping[str, object] = {
    "policy_base_url": "",
    "policy_api_key": "",
    "policy_model_name": "",
    POLICY_MODEL: {MODEL_TIER: {DUMMY_MODEL: {"entrypoint": "app.py"}}},
}
"""The `initial` or `stand_in` value for commands that do not need a model, such as listing or data preparation."""
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_TIERS = (*SERVER_TYPES, ENVIRONMENT_SERVERS)


class Overlay(NamedTuple):
    """A block that still has no entrypoint after all files are merged, because no file defines its server."""

    name: str
    tier: str
    origin: Origin


def is_overlay(block: Node, tier: str) -> bool:
    """Return whether a block has no entrypoint, not even at a wrong level or misspelt.

    A block from the command line is never an overlay. If it changes a server that is missing, the user made a mistake.
    """
    held = block.mapping[tier]
    levels = (block, held, *held.mapping.values())
    if any(is_typed(level.origin) or not isinstance(level.value, dict | None) for level in levels):
        return False
    return not any(closest("entrypoint", map(str, level.mapping), CERTAINLY_MEANT) for level in levels)


def notes_of_overlays(overlays: Sequence[Overlay], servers: Iterable[ServerConfig]) -> list[str]:
    """Return a note for each overlay whose name is probably a misspelt server name."""
    tiers = {server.name: server.type for server in servers}
    notes = []
    for overlay in overlays:
        names = [name for name, tier in tiers.items() if tier == overlay.tier]
        if guess := closest(overlay.name, names, CERTAINLY_MEANT):
            notes.append(
                f"{overlay.origin}: {overlay.name} is ignored, because it has no entrypoint and no file defines the "
                f"server that it changes. Did you mean '{guess}'?"
            )
    return notes


class RunDefaults(NamedTuple):
    """Run-wide defaults. Each server may override them, except `scheme`."""

    host: str
    advertised_host: str
    scheme: str
    for_agents: Mapping[str, object]
    """The keys `skip_verification` and `skip_verification_reward`, if they are set."""

    @classmethod
    def of(cls, settings: RunSettings, tls: Tls | None) -> Self:
        """Return the defaults that a run's settings give its servers."""
        for_agents = settings.model_dump(include={"skip_verification", "skip_verification_reward"}, exclude_unset=True)
        return cls(settings.host, settings.advertised_host or "", scheme_of(tls), for_agents)


class Block(NamedTuple):
    """One server block, before its settings are parsed."""

    name: str
    tier: str
    implementation: str
    node: Node

    @property
    def path(self) -> tuple[str, ...]:
        return (self.name, self.tier, self.implementation)

    @property
    def key(self) -> str:
        return ".".join(self.path)


class _Generic(BaseModel):
    """Settings that every server block accepts."""

    model_config = ConfigDict(extra="ignore")

    entrypoint: str
    host: str | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    advertised_host: str | None = None
    advertised_port: int | None = Field(default=None, ge=1, le=65535)
    num_workers: int | None = Field(default=None, ge=1)
    domain: Domain | None = None
    datasets: list[DatasetConfig] = Field(default_factory=list)
    workers: int | None = Field(default=None, ge=1)
    isolated: bool = False
    ray: RayNeeds = RayNeeds()


class Parsed(NamedTuple):
    """The outcome of parsing a server block."""

    server: ServerConfig | None
    """The server; None if its block is invalid."""
    problems: Sequence[str] = ()
    unresolved: Sequence[Unresolved] = ()
    """The values that cannot be resolved."""


def join_dummy_models(tree: Node) -> Node:
    """Return the tree with each `dummy_model` merged into the real model in the same block."""
    for name, block in tree.mapping.items():
        models = block.mapping.get(MODEL_TIER)
        if models is None or DUMMY_MODEL not in models.mapping or len(models.mapping) != 2:
            continue
        real = next(key for key in models.mapping if key != DUMMY_MODEL)
        joined = merge(models.mapping[DUMMY_MODEL], models.mapping[real], tree)
        tree = tree.updated(**{str(name): block.updated(**{MODEL_TIER: Node({real: joined}, models.origin)})})
    return tree


class Found(NamedTuple):
    """The blocks of a config tree that define servers, that resemble servers but are invalid, or that are overlays."""

    blocks: list[Block]
    almost: list[str]
    """One message for each block that resembles a server but is invalid."""
    overlays: list[Overlay]


def find_blocks(tree: Node) -> Found:
    """Return the server blocks, messages about blocks that resemble servers but are invalid, and the overlays.

    Raise DuplicateServerError if one name has two server types or two implementations.
    """
    blocks: list[Block] = []
    almost: list[str] = []
    overlays: list[Overlay] = []
    for key, node in tree.mapping.items():
        name = str(key)
        if name in RESERVED_KEYS or not node.mapping:
            continue
        tiers = {tier: node.mapping[tier] for tier in _TIERS if tier in node.mapping}
        if not tiers:
            almost += _misspelt_tier(name, node)
            continue
        _check_single(name, tiers, "tiers")
        tier, held = next(iter(tiers.items()))
        if tier != ENVIRONMENT_SERVERS and is_overlay(node, tier):
            overlays.append(Overlay(name, tier, node.origin))
            continue
        implementations = {str(key): child for key, child in held.mapping.items()}
        misplaced = _settings_next_to(f"{name}.{tier}", implementations) or _settings_above(name, node, tier)
        if misplaced:
            almost += misplaced
            continue
        _check_single(f"{name}.{tier}", implementations, "implementations")
        if implementations:
            implementation, settings = next(iter(implementations.items()))
            almost += _unusable_name(name, node.origin)
            blocks.append(Block(name, tier, implementation, settings))
        elif not isinstance(held.value, dict):
            problem = "indent the name of a folder, and its settings, below this line"
            almost.append(f"{held.origin}: {name}.{tier}: {problem}.")
    return Found(blocks, almost, overlays)


def _check_single(key: str, found: Mapping[str, Node], noun: str) -> None:
    if len(found) < 2:
        return
    (first, one), (second, other) = list(found.items())[:2]
    if noun == "implementations" and not other.origin.line and "entrypoint" not in other.mapping:
        hint = f"Did you mean '{first}'?"
        raise DuplicateServerError(f"{other.origin}: {key} has no folder '{second}' to change. {hint}")
    raise DuplicateServerError(
        f"{other.origin}: {key} has two {noun}: {first} ({one.origin}) and {second} ({other.origin}). Rename one "
        "of the blocks, or omit one of the files."
    )


def _settings_next_to(key: str, found: Mapping[str, Node]) -> list[str]:
    """Return a message for each setting that is next to the folder's name instead of below it."""
    folder = next(iter(found), "")
    return [
        f"{node.origin}: {key}: '{name}' is next to '{folder}'; indent settings below the folder name."
        for name, node in found.items()
        if name != folder and node.value is not None and not isinstance(node.value, dict)
    ]


def _settings_above(name: str, block: Node, tier: str) -> list[str]:
    """Return a message for each setting that is next to the server type instead of two levels below it."""
    if tier == ENVIRONMENT_SERVERS:
        return []
    folder = str(next(iter(block.mapping[tier].mapping), "FOLDER"))
    lines = []
    for key, node in block.mapping.items():
        if key != tier and key not in METADATA_KEYS:
            is_tier = closest(str(key), SERVER_TYPES, CERTAINLY_MEANT) == tier
            rest = () if is_tier else (folder,) if key == folder else (folder, key)
            meant = dotted((name, tier, *rest))
            lines.append(f"{node.origin}: {name}.{key} is next to {tier}; did you mean {meant}?")
    return lines


def _unusable_name(name: str, origin: Origin) -> list[str]:
    if _NAME.fullmatch(name):
        return []
    better = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    return [
        f"{origin}: {name}: a server name may contain only letters, digits, '_', '.' and '-', because it becomes part "
        f"of cookies. Rename it to '{better}'."
    ]


def _misspelt_tier(name: str, node: Node) -> list[str]:
    """Return a message if a block's only key looks like a misspelt server type and contains an entrypoint."""
    if len(node.mapping) != 1:
        return []
    (tier, held), *_ = node.mapping.items()
    if not any("entrypoint" in child.mapping for child in held.mapping.values()):
        return []
    hint = did_you_mean_or_all(str(tier), SERVER_TYPES, "types")
    return [f"{held.origin}: {name}.{tier}: '{tier}' is not a server type.{hint}"]


def parse_server(
    block: Block,
    resolver: Resolver,
    defaults: RunDefaults,
    others: Sequence[Block],
    *,
    is_elsewhere: bool = False,
    needs_variables: bool = True,
) -> Parsed:
    """Parse a server block.

    `others` are the blocks whose names may be suggested. If another machine starts the server (`is_elsewhere`), only
    that machine must be able to resolve the server's values. If `needs_variables` is false, settings of the server's
    own class may read environment variables that are not set. Raise UnknownImplementationError if the server's folder
    or entrypoint does not exist.
    """
    places = resolver.origins(block.path)
    settings, unresolved = resolver.resolve(block.path)
    if not isinstance(settings, dict):
        state = "is empty" if settings is None else "is not a mapping"
        problem = f"{block.node.origin}: {block.key} {state}. Indent its settings, entrypoint first, below it."
        return Parsed(None, [problem], unresolved)
    unset = [] if needs_variables else [one for one in unresolved if _may_wait(one)]
    if len(unresolved) > len(unset) and not is_elsewhere:
        return Parsed(None, unresolved=unresolved)
    type_ = cast(ServerType, block.tier)
    if type_ != "resources_servers":
        settings.pop("domain", None)
    own = own_fields(Path(block.tier, block.implementation), settings)
    try:
        generic = _Generic.model_validate({key: value for key, value in settings.items() if key not in own})
    except ValidationError as error:
        if "entrypoint" not in settings and is_typed(block.node.origin):
            return Parsed(None, [_unknown_server(block, others)])
        return Parsed(None, [explain_validation(error, block=block.key, origins=places)])
    problems = _misspelt_dataset_keys(block, settings, places)
    if problems:
        return Parsed(None, problems)
    if type_ == "responses_api_agents":
        settings = {**defaults.for_agents, **settings}
    server = ServerConfig(
        name=block.name,
        type=type_,
        implementation=block.implementation,
        entrypoint=generic.entrypoint,
        folder=_folder(block, generic.entrypoint, places),
        host=generic.host or defaults.host,
        port=generic.port or 0,
        port_is_fixed=bool(generic.port),
        advertised_host=generic.advertised_host or defaults.advertised_host,
        advertised_port=generic.advertised_port or 0,
        num_workers=generic.workers or generic.num_workers,
        settings=settings,
        origins=places,
        datasets=tuple(generic.datasets),
        isolated=generic.isolated,
        ray=generic.ray,
        scheme=defaults.scheme,
        unset_variables=tuple(one.problem for one in unset),
    )
    return Parsed(server)


def _may_wait(unresolved: Unresolved) -> bool:
    """Return whether a value can be resolved later, when its server starts and has the environment variables."""
    setting = unresolved.path[3] if len(unresolved.path) > 3 else ""
    return unresolved.lacks_variable and setting not in _Generic.model_fields


def _unknown_server(block: Block, others: Sequence[Block]) -> str:
    """Return the message for a block that has no entrypoint and is defined only on the command line."""
    same_folder = [other.name for other in others if other.path[1:] == block.path[1:]]
    hint = (
        f" Did you mean '{same_folder[0]}'?"
        if len(same_folder) == 1
        else did_you_mean_or_all(block.name, [other.name for other in others], "servers")
    )
    return f"{block.node.origin}: there is no server '{block.name}' to change.{hint} A new server needs an entrypoint."


def _misspelt_dataset_keys(block: Block, settings: JsonObject, places: Mapping[str, Origin]) -> list[str]:
    problems: list[str] = []
    for index, dataset in enumerate(settings.get("datasets") or ()):
        start = f"datasets.{index}"
        below = {key[len(start) + 1 :]: origin for key, origin in places.items() if f"{key}.".startswith(f"{start}.")}
        problems += near_misses(DatasetConfig, dataset, block=f"{block.key}.{start}", origins=below)
    return problems


def _folder(block: Block, entrypoint: str, places: Mapping[str, Origin]) -> Path:
    relative = Path(block.tier, block.implementation)
    found = find(relative / entrypoint, Path.is_file)
    if found:
        return Path(str(found)[: -len(str(Path(entrypoint)))])
    if block.tier == MODEL_TIER and block.implementation == DUMMY_MODEL:
        return INSTALL_ROOT / relative
    folder = find(relative, Path.is_dir)
    if folder:
        scripts = [file.name for file in sorted(folder.glob("*.py"))]
        place = places.get("entrypoint", block.node.origin)
        raise UnknownImplementationError(
            f"{place}: {block.key}.entrypoint: {folder} does not contain {entrypoint}."
            f"{did_you_mean_or_all(entrypoint, scripts, 'files there', if_none='Create it.')}"
        )
    held = [root / block.tier for root in search_roots()]
    direct = (path.parent for each in held for path in each.glob("*/*.py") if path.is_file())
    nested = (folder for each in held for folder in nested_folders(each))
    known = {ServerFolder.of(folder).implementation for folder in (*direct, *nested)}
    roots = ", ".join(str(root) for root in search_roots())
    noun, advice = f"implementations in {block.tier}", search_dir_for(block.tier)
    hint = removed_path(relative) or did_you_mean_or_all(block.implementation, known, noun, if_none=advice)
    raise UnknownImplementationError(
        f"{block.node.origin}: {block.name}: there is no folder {relative} with {entrypoint} in it (looked in "
        f"{roots}).{hint}"
    )


def stop_at_almost_servers(problems: list[str], is_error: bool) -> None:
    """Raise AlmostServerError for invalid server blocks, or log them if they may be skipped."""
    if not problems:
        return
    if is_error:
        raise AlmostServerError("\n".join(problems))
    for problem in problems:
        logger.warning("%s (skipped, because error_on_almost_servers is false)", problem)
