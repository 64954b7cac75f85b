"""What installed packages offer as entry points: commands, launchers, exporters and environments.

The parts of this package that connect to a cluster or a tracker are offered in the same way.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

COMMANDS = "nemo_gym.commands"
"""Commands of `ng`, each a `nemo_gym.cli.commands.Command`."""
LAUNCHERS = "nemo_gym.launchers"
"""Functions that start the servers of a run, with the parameters of `nemo_gym.launcher.launch`."""
EXPORTERS = "nemo_gym.exporters"
"""Experiment trackers, each a `nemo_gym.data.exporters.Exporter`."""
ENVIRONMENTS = "nemo_gym.environments"
"""Packages with folders of environments, such as `resources_servers/sums/`. `ng env pack` makes them."""
CONTENTS = "nemo_gym.contents"
"""Functions that return the version and the digest of each package whose files a run uses, given its `RunConfig`."""


@cache
def environment_roots() -> tuple[Path, ...]:
    """Return the folders of the installed packages with environments, without importing them."""
    specs = [find_spec(offer.module.partition(".")[0]) for offer in _offers(ENVIRONMENTS)]
    return tuple(Path(each).resolve() for spec in specs if spec for each in spec.submodule_search_locations or ())


def offered(group: str) -> dict[str, Any]:
    """Return everything that is offered in a group, by name. Raise `ConfigError` if something cannot be imported."""
    return {name: load(group, name) for name in names_in(group)}


def names_in(group: str) -> list[str]:
    """Return the names that are offered in a group."""
    return sorted(_offers(group).names)


def load(group: str, name: str) -> Any:
    """Return what is offered under a name. Raise `KeyError` for an unknown name, `ConfigError` if an import fails."""
    offer = _offers(group)[name]
    try:
        return offer.load()
    except Exception as error:
        package = offer.dist.name if offer.dist else "its package"
        raise ConfigError(
            f"'{name}' ({group}) cannot be imported from {offer.value}: {type(error).__name__}: {error}. Correct or "
            f"uninstall {package}."
        ) from error


def _offers(group: str) -> EntryPoints:
    # Import the module here, because most commands need no plug-in, and importing it is slow.
    from importlib.metadata import entry_points

    return entry_points(group=group)
