"""Environment variables that a server's process may inherit openly, and those withheld from it."""

from __future__ import annotations

import os

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.masking import is_secret_key

CONFIG_DICT_ENV_VAR = "NEMO_GYM_CONFIG_DICT"
"""May hold a whole configuration as YAML, which then replaces all other sources."""

NEVER_HANDED = frozenset({RUN_TOKEN_ENV_VAR, CONFIG_DICT_ENV_VAR})
"""Variables never passed on: a server gets its own values through its settings."""


def shown_environment() -> dict[str, str]:
    """Return the variables without secrets, because other users can read the environment of a new process."""
    return {name: value for name, value in os.environ.items() if not _is_withheld(name)}


def withheld_environment() -> dict[str, str]:
    """Return the variables that hold secrets."""
    return {name: value for name, value in os.environ.items() if _is_withheld(name)}


def _is_withheld(name: str) -> bool:
    return name in NEVER_HANDED or is_secret_key(name)
