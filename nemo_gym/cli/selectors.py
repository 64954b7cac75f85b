"""Select configs by name instead of by path: `--resources-server mcqa`, `--benchmark sums/hard`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.cli import printing
from nemo_gym.config.pairing import AGENT_CONFIG
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.errors import ConfigPathNotFoundError
from nemo_gym.text import closest, did_you_mean_or_all, search_dir_for


class Selector(NamedTuple):
    """A flag that selects configs of one folder by name, such as `--benchmark sums`."""

    flag: str
    folder: str
    meaning: str
    is_server: bool
    """Whether a config is `configs/<name>.yaml`, as for servers, instead of `config.yaml`."""
    others: tuple[str, ...] = ()
    """The flags of other selectors. This selector accepts their names as well."""

    @property
    def key(self) -> str:
        """The name of the flag in the parsed arguments."""
        return self.flag.lstrip("-").replace("-", "_")

    def path_of(self, name: str) -> str:
        """Return the config's path for `name` or `name/flavor`, relative to a search root. Both may have slashes."""
        parts = name.split("/")
        own = f"{name}/" + (f"configs/{parts[-1]}.yaml" if self.is_server else "config.yaml")
        inner = "/configs/" if self.is_server else "/"
        flavors = [f"{'/'.join(parts[:at])}{inner}{'/'.join(parts[at:])}.yaml" for at in range(len(parts) - 1, 0, -1)]
        choices = [f"{self.folder}/{each}" for each in (own, *flavors)]
        return next((each for each in choices if paths.find(each, Path.is_file)), choices[-1])

    def known(self) -> set[str]:
        """Return the names of all folders that this flag can select."""
        found = {path.name for root in paths.search_roots() for path in (root / self.folder).glob("*/")}
        return found - {"__pycache__"}

    def flavors(self, name: str) -> list[str]:
        """Return the names of a folder's configs."""
        folders = [root / self.folder / name / ("configs" if self.is_server else "") for root in paths.search_roots()]
        pattern = "**/*.yaml" if self.is_server else "*.yaml"
        return [path.relative_to(each).with_suffix("").as_posix() for each in folders for path in each.glob(pattern)]


SELECTORS = (
    Selector("--benchmark", "benchmarks", "A benchmark's config.", is_server=False),
    Selector(
        "--environment",
        "environments",
        "The config of an environment: any name of `ng list environments`.",
        is_server=False,
        others=("--resources-server", "--benchmark"),
    ),
    Selector(
        "--resources-server",
        "resources_servers",
        "An environment's config in resources_servers/.",
        is_server=True,
    ),
    Selector("--model-type", "responses_api_models", "A model server's config.", is_server=True),
)
"""The selectors, in the order in which their configs are merged."""
AGENT_TYPE = Selector("--agent-type", "responses_api_agents", "Another agent for the environments.", is_server=True)


def add_selectors(parser: argparse.ArgumentParser) -> None:
    for selector in SELECTORS:
        parser.add_argument(selector.flag, action="append", metavar="NAME[/FLAVOR]", help=selector.meaning)


def take_selected(given: dict[str, list[str] | None]) -> Iterator[str]:
    """Remove the selectors from the parsed arguments, and yield the configs that they name.

    Raise `ConfigPathNotFoundError` with suggestions for an unknown name.
    """
    for selector in SELECTORS:
        for name in given.pop(selector.key, None) or []:
            yield _found(selector, name)


def add_agent_type(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--agent-type`, which selects another agent for the environments, to a command's parser."""
    meaning = f"{AGENT_TYPE.meaning} Its config gives its settings."
    parser.add_argument(AGENT_TYPE.flag, dest=AGENT_CONFIG, metavar="NAME[/FLAVOR]", help=meaning)


def agent_config(name: str) -> str:
    """Return the config that `--agent-type NAME` selects."""
    return _found(AGENT_TYPE, name)


def environment_config(name: str, kind: str | None = None) -> str:
    """Return the config that `--environment NAME` selects. With a kind, return only an environment's or a benchmark's.

    Raise `ConfigPathNotFoundError` with suggestions for an unknown name.
    """
    selector = next(each for each in SELECTORS if each.key == (kind or "environment"))
    others = tuple(each for each in selector.others if kind is None or each != "--benchmark")
    return _found(selector._replace(others=others), name)


def check_search_dir(given: str) -> None:
    """Raise `ConfigPathNotFoundError` if the folder for `--search-dir` does not exist.

    Also raise it for a folder such as `resources_servers/`, because `--search-dir` takes the parent of such folders.
    """
    folder = Path(given).expanduser()
    if folder.is_dir():
        if folder.name in SERVER_TYPES and not any((folder / tier).is_dir() for tier in SERVER_TYPES):
            raise ConfigPathNotFoundError(
                f"--search-dir {given}: this folder only has servers of one type. Name the folder above it, "
                f"'{folder.parent}'."
            )
        return
    if folder.exists():
        raise ConfigPathNotFoundError(f"--search-dir {given}: this is a file, not a folder. Name a folder.")
    guess = closest(folder.name, [path.name for path in folder.parent.glob("*/")])
    hint = f" Did you mean '{folder.parent / guess}'?" if guess else ""
    raise ConfigPathNotFoundError(f"--search-dir {given}: there is no such folder.{hint}")


def _found(selector: Selector, name: str) -> str:
    all_taken = [selector, *(each for each in SELECTORS if each.flag in selector.others)]
    candidates = [each.path_of(name) for each in all_taken]
    relative = next((path for path in candidates if paths.find(path, Path.is_file)), candidates[0])
    places = [root for root in paths.search_roots() if (root / relative).is_file()]
    if len(places) > 1:
        others = ", ".join(map(str, places[1:]))
        printing.note(f"note: {selector.flag} {name}: using {places[0]}; also found in {others}.")
    if places:
        return relative
    folder, _, flavor = name.partition("/")
    known = {known_name for each in all_taken for known_name in each.known()}
    if folder in known and (flavors := [config for each in all_taken for config in each.flavors(folder)]):
        hint = did_you_mean_or_all(flavor, flavors, f"configs of {folder}")
    else:
        hint = did_you_mean_or_all(folder, known - {folder}, selector.folder, if_none=search_dir_for(selector.folder))
    searched = ", ".join(map(str, paths.search_roots()))
    elsewhere = search_dir_for(selector.folder)
    if folder not in known and elsewhere not in hint:
        hint += f" Otherwise {elsewhere[0].lower()}{elsewhere[1:]}"
    raise ConfigPathNotFoundError(f"{selector.flag} {name}: {relative} not found in {searched}.{hint}")
