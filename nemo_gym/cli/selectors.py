"""Configs by name instead of by path: `--resources-server mcqa`, `--benchmark sums/hard`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import ConfigPathNotFoundError


class Selector(NamedTuple):
    """A flag that names a folder of configs."""

    flag: str
    folder: str
    meaning: str
    is_server: bool
    """A server's configs stand in `configs/` and one is called as the server; elsewhere it is `config.yaml`."""

    @property
    def key(self) -> str:
        """Where argparse keeps it."""
        return self.flag.lstrip("-").replace("-", "_")

    def path_of(self, name: str) -> str:
        """The config that `name` or `name/flavor` means, from a search root."""
        first, _, flavor = name.partition("/")
        if self.is_server:
            return f"{self.folder}/{first}/configs/{flavor or first}.yaml"
        nested = f"{self.folder}/{name}/config.yaml"
        return nested if not flavor or paths.find(nested, Path.is_file) else f"{self.folder}/{name}.yaml"

    def known(self) -> list[str]:
        """The folders there are."""
        found = {path.name for root in paths.search_roots() for path in (root / self.folder).glob("*/")}
        return sorted(found - {"__pycache__"})

    def flavors(self, name: str) -> list[str]:
        """The configs of a server."""
        return [
            path.stem for root in paths.search_roots() for path in (root / self.folder / name).glob("configs/*.yaml")
        ]


SELECTORS = (
    Selector("--benchmark", "benchmarks", "the config of a benchmark", is_server=False),
    Selector("--environment", "environments", "the config of an environment", is_server=False),
    Selector("--resources-server", "resources_servers", "the config of an environment", is_server=True),
    Selector("--model-type", "responses_api_models", "the config of a model server", is_server=True),
)
"""In the order in which their configs are merged."""


def add_selectors(parser: argparse.ArgumentParser) -> None:
    """Give a command all of them."""
    for selector in SELECTORS:
        parser.add_argument(selector.flag, action="append", metavar="NAME[/FLAVOR]", help=selector.meaning)


def selected_configs(given: Mapping[str, list[str] | None]) -> Iterator[str]:
    """The configs that were named; `ConfigPathNotFoundError` says what else there is."""
    for selector in SELECTORS:
        for name in given.get(selector.key) or []:
            yield _found(selector, name)


def _found(selector: Selector, name: str) -> str:
    relative = selector.path_of(name)
    places = [root for root in paths.search_roots() if (root / relative).is_file()]
    if len(places) > 1:
        others = ", ".join(map(str, places[1:]))
        print(f"note: {selector.flag} {name}: taken from {places[0]}, and also in {others}.", file=sys.stderr)  # noqa: T201
    if places:
        return relative
    folder, _, flavor = name.partition("/")
    if flavor and selector.is_server and (flavors := selector.flavors(folder)):
        hint = did_you_mean_or_all(flavor, flavors, f"configs of {folder}")
        raise ConfigPathNotFoundError(f"{selector.flag} {name}: no {relative}.{hint}")
    known = selector.known()
    close = get_close_matches(name.partition("/")[0], known, n=1)
    listed = f" There are: {', '.join(known)}." if known else ""
    hint = f" Did you mean '{close[0]}'?" if close else listed
    raise ConfigPathNotFoundError(f"{selector.flag} {name}: no {relative}.{hint}")
