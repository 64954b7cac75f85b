"""The part of a run that this machine starts, if several machines share the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from nemo_gym.config.models import DEFAULT_HEAD_SERVER_PORT, HeadConfig, Origin
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.errors import ConfigError
from nemo_gym.text import did_you_mean_or_all

NO_SERVER = "none"
"""The value of `only` for a machine that starts the head server, but no other server."""


class Part(NamedTuple):
    """The servers that this machine starts, and the run that they join."""

    names: frozenset[str] | None
    """The names of the servers to start. None means all servers."""
    head: HeadConfig | None
    """The head server to join. None if this machine starts the run's head server."""


def part_of(settings: RunSettings, known: Collection[str], tls: Tls | None, places: Mapping[str, Origin]) -> Part:
    """Return the part of the run that `only` and `join` select. Raise `ConfigError` if one of them is invalid."""
    return Part(_names(settings.only, known, places), _head(settings.join, tls, places))


def _names(
    given: str | Sequence[str] | None, known: Collection[str], places: Mapping[str, Origin]
) -> frozenset[str] | None:
    if given is None:
        return None
    place = places.get("only")
    words = given.split(",") if isinstance(given, str) else given
    if not words or not all(word.strip() for word in words):
        raise ConfigError(
            f"{place}: only must list the servers that this machine starts, such as [mcqa, mcqa_simple_agent], "
            f"or be '{NO_SERVER}' for the head server alone, but is {given!r}."
        )
    # Split each item, because it may itself be a comma-separated list, as in `--only a,b --only c`.
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    if names == [NO_SERVER]:
        return frozenset()
    for name in names:
        if name not in known:
            hint = did_you_mean_or_all(name, known, "servers", if_none="Add a config file that defines one.")
            raise ConfigError(f"{place}: only names '{name}', which is not a server of this configuration.{hint}")
    return frozenset(names)


def _head(given: str | None, tls: Tls | None, places: Mapping[str, Origin]) -> HeadConfig | None:
    if given is None:
        return None
    scheme = scheme_of(tls)
    url = given if "://" in given else f"{scheme}://{given}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_HEAD_SERVER_PORT
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in ("http", "https") or parts.path.strip("/"):
        raise ConfigError(
            f"{places.get('join')}: join must be the address of the run's head server, such as "
            f"{scheme}://10.0.0.5:{DEFAULT_HEAD_SERVER_PORT}, but is {given!r}."
        )
    if parts.scheme != scheme:
        has, advice = ("no tls", "Set tls on all machines") if tls is None else ("tls", "Write https")
        raise ConfigError(f"{places.get('join')}: join is {given}, but this configuration has {has}. {advice}.")
    return HeadConfig(host=host, port=port, port_is_fixed=True, tls=tls)
