"""Turn the server blocks of a merged tree into typed server configurations."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.explain import METADATA_KEYS, explain_validation, near_misses
from nemo_gym.config.interpolation import Resolver, Unresolved
from nemo_gym.config.models import DatasetConfig, Origin, PlacementKind, ServerConfig
from nemo_gym.config.reserved import RESERVED_KEYS
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SERVER_TYPES, Domain, ServerType
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.config.tree import Node, dotted, merge
from nemo_gym.errors import AlmostServerError, ConfigError, DuplicateServerError, UnknownImplementationError
from nemo_gym.paths import find, search_roots

logger = logging.getLogger(__name__)

MODEL_TIER = "responses_api_models"
DUMMY_MODEL = "dummy_model"
"""An implementation without a folder: it lets a configuration without a model be read and listed."""

NO_MODEL: Mapping[str, Any] = {
    "policy_base_url": "",
    "policy_api_key": "",
    "policy_model_name": "",
    "policy_model": {MODEL_TIER: {DUMMY_MODEL: {"entrypoint": "app.py"}}},
}
"""Pass it as `initial` where a model is not needed and need not be configured: to list, to prepare data."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_TIERS = (*SERVER_TYPES, ENVIRONMENT_SERVERS)


class RunDefaults(NamedTuple):
    """What servers take over from the top level where they do not say it themselves."""

    host: str
    for_agents: Mapping[str, Any]
    """`skip_verification` and `skip_verification_reward`, where they are set."""


class Block(NamedTuple):
    """One server block, its implementation found but its settings not yet read."""

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
    """What any server block may say, whatever its class."""

    model_config = ConfigDict(extra="ignore")

    entrypoint: str
    host: str | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    num_workers: int | None = Field(default=None, ge=1)
    domain: Domain | None = None
    datasets: list[DatasetConfig] = Field(default_factory=list)
    workers: int | None = Field(default=None, ge=1)
    isolated: bool = False
    placement: PlacementKind | None = None

    @property
    def number_of_workers(self) -> int | None:
        """By either of its names; the published one is `num_workers`."""
        return self.workers or self.num_workers


def join_dummy_models(tree: Node) -> Node:
    """The tree with each `dummy_model` that stands beside a real model merged into that one."""
    for name, block in tree.mapping.items():
        models = block.mapping.get(MODEL_TIER)
        if models is None or DUMMY_MODEL not in models.mapping or len(models.mapping) != 2:
            continue
        real = next(key for key in models.mapping if key != DUMMY_MODEL)
        joined = merge(models.mapping[DUMMY_MODEL], models.mapping[real], tree)
        tree = tree.having(**{str(name): block.having(**{MODEL_TIER: Node({real: joined}, models.origin)})})
    return tree


def find_blocks(tree: Node) -> tuple[list[Block], list[str]]:
    """The server blocks of a tree, and one line for each block that is almost one.

    Raises DuplicateServerError where one name has two tiers or two implementations.
    """
    blocks: list[Block] = []
    almost: list[str] = []
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
        implementations = {str(key): child for key, child in held.mapping.items()}
        beside = _settings_beside(f"{name}.{tier}", implementations) or _settings_above(name, node, tier)
        if beside:
            almost += beside
            continue
        _check_single(f"{name}.{tier}", implementations, "implementations")
        if implementations:
            implementation, settings = next(iter(implementations.items()))
            almost += _unusable_name(name, node.origin)
            blocks.append(Block(name, tier, implementation, settings))
        elif not isinstance(held.value, dict):
            problem = "the name of a folder, and below it the settings, are indented below this line"
            almost.append(f"{held.origin}: {name}.{tier}: {problem}.")
    return blocks, almost


def _check_single(key: str, found: Mapping[str, Node], noun: str) -> None:
    if len(found) < 2:
        return
    (first, one), (second, other) = list(found.items())[:2]
    raise DuplicateServerError(
        f"{other.origin}: {key} has two {noun}: {first} ({one.origin}) and {second} ({other.origin}). One name is one "
        "server: rename one of the blocks, or leave out one of the files."
    )


def _settings_beside(key: str, found: Mapping[str, Node]) -> list[str]:
    """A line for each setting that stands beside the folder's name instead of below it."""
    folder = next(iter(found), "")
    return [
        f"{node.origin}: {key}: '{name}' stands beside '{folder}'; settings are indented below the name of the folder."
        for name, node in found.items()
        if name != folder and node.value is not None and not isinstance(node.value, dict)
    ]


def _settings_above(name: str, block: Node, tier: str) -> list[str]:
    """A line for each setting that stands beside the tier instead of two levels below it."""
    if tier == ENVIRONMENT_SERVERS:
        return []
    folder = str(next(iter(block.mapping[tier].mapping), "FOLDER"))
    lines = []
    for key, node in block.mapping.items():
        if key != tier and key not in METADATA_KEYS:
            meant = dotted((name, tier, folder) if key == folder else (name, tier, folder, key))
            lines.append(f"{node.origin}: {name}.{key} stands beside {tier}; did you mean {meant}?")
    return lines


def _unusable_name(name: str, origin: Origin) -> list[str]:
    if _NAME.fullmatch(name):
        return []
    better = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    return [
        f"{origin}: {name}: the name of a server may have letters, digits, '_', '.' and '-' only, because it goes "
        f"into cookies. Call it '{better}'."
    ]


def _misspelt_tier(name: str, node: Node) -> list[str]:
    """A line where the only key of a block looks like a tier and holds something with an entrypoint."""
    if len(node.mapping) != 1:
        return []
    (tier, held), *_ = node.mapping.items()
    if not any("entrypoint" in child.mapping for child in held.mapping.values()):
        return []
    hint = did_you_mean_or_all(str(tier), SERVER_TYPES, "types")
    return [f"{held.origin}: {name}.{tier}: '{tier}' is no type of server.{hint}"]


def build_server(
    block: Block, resolver: Resolver, defaults: RunDefaults
) -> tuple[ServerConfig | None, list[str], list[Unresolved]]:
    """One server, or the lines that say what is wrong with it, and what in it could not be resolved.

    Raises UnknownImplementationError where no folder holds the code.
    """
    places = resolver.origins(block.path)
    settings, unresolved = resolver.resolve(block.path)
    if not isinstance(settings, dict):
        what = "it is empty" if settings is None else "it is not a mapping"
        problem = f"{block.node.origin}: {block.key}: {what}; its settings, entrypoint first, are indented below it."
        return None, [problem], unresolved
    if unresolved:
        return None, [], unresolved
    type_ = cast(ServerType, block.tier)
    if type_ != "resources_servers":
        settings.pop("domain", None)
    try:
        generic = _Generic.model_validate(settings)
    except ValidationError as error:
        return None, [explain_validation(error, block=block.key, origins=places)], []
    problems = _misspelt_dataset_keys(block, settings, places)
    if problems:
        return None, problems, []
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
        num_workers=generic.number_of_workers,
        settings=settings,
        origins=places,
        datasets=tuple(generic.datasets),
        isolated=generic.isolated,
        placement=generic.placement,
    )
    return server, [], []


def _misspelt_dataset_keys(block: Block, settings: Mapping[str, Any], places: Mapping[str, Origin]) -> list[str]:
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
        return search_roots()[-1] / relative
    folder = find(relative, Path.is_dir)
    if folder:
        scripts = [file.name for file in sorted(folder.glob("*.py"))]
        place = places.get("entrypoint", block.node.origin)
        raise UnknownImplementationError(
            f"{place}: {block.key}.entrypoint: {folder} has no file {entrypoint}."
            f"{did_you_mean_or_all(entrypoint, scripts, 'files there')}"
        )
    known = {
        path.parent.name for root in search_roots() for path in (root / block.tier).glob("*/*.py") if path.is_file()
    }
    roots = ", ".join(str(root) for root in search_roots())
    raise UnknownImplementationError(
        f"{block.node.origin}: {block.name}: there is no folder {relative} with an {entrypoint} in it (looked in "
        f"{roots}).{did_you_mean_or_all(block.implementation, known, f'implementations in {block.tier}')}"
    )


def default_host(plain: Mapping[str, Any], places: Mapping[str, Origin]) -> str:
    """The host of servers that name none. Raises ConfigError where what is given cannot be one."""
    given = plain.get("default_host")
    if given and not isinstance(given, str):
        raise ConfigError(
            f"{places['default_host']}: default_host is the name or the address of a host, such as 127.0.0.1, and "
            f"here it is {given!r}."
        )
    if given:
        return str(given)
    return socket.gethostbyname(socket.gethostname()) if plain.get("use_absolute_ip") is True else "127.0.0.1"


def stop_at_almost_servers(problems: list[str], is_error: bool) -> None:
    """Raise AlmostServerError for blocks that are not valid servers, or log them where they are to be left out."""
    if not problems:
        return
    if is_error:
        raise AlmostServerError("\n".join(problems))
    for problem in problems:
        logger.warning("%s (left out, as error_on_almost_servers is false)", problem)
