"""Find the keys on a command line that nothing reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nemo_gym.config.overrides import Override
from nemo_gym.config.run_settings import TOP_LEVEL_KEYS
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SERVER_TYPES
from nemo_gym.config.sources import known_keys
from nemo_gym.config.suggestions import closest

NEAR = 0.75
"""The minimum similarity that counts as a typo, such as `num_repeat` for `num_repeats`."""


class UnknownKey(NamedTuple):
    """An override whose key nothing reads, with the key that was probably meant, or None."""

    override: Override
    meant: str | None


def unknown_keys(
    files: Sequence[str], overrides: Sequence[Override], settings: Mapping[str, str], missing: Collection[str]
) -> list[UnknownKey]:
    """Return the overrides whose key is neither a setting nor known to the config.

    `settings` maps all names of the command's settings to their keys. A likely typo of one of the `missing` settings
    is left out, because the error about the missing setting mentions it. The config is read only if a key is not a
    setting.
    """
    keys = {*settings.values(), *TOP_LEVEL_KEYS}
    unknown = [(each, key) for each in overrides if (key := _added_key(each)) and key not in keys]
    if not unknown:
        return []
    of_config = known_keys(files, overrides)
    reported = {*missing} - of_config - {_added_key(each) for each in overrides}
    found = [
        UnknownKey(override, settings.get(key) or closest(key, sorted(keys), NEAR))
        for override, key in unknown
        if key not in of_config
    ]
    return [each for each in found if each.meant not in reported]


def _added_key(override: Override) -> str | None:
    """Return the top-level key that an override sets, even if no file has it; None for all other overrides.

    Also return None if the override adds a server, because a server can have any name.
    """
    value = override.value
    below = [*override.path[1:2], *(map(str, value.mapping) if value is not None and len(override.path) == 1 else ())]
    is_server = any(key in (*SERVER_TYPES, ENVIRONMENT_SERVERS) for key in below)
    return None if is_server or override.action != "set" else override.path[0]
