"""Environment variables that a server process inherits, and variables with secrets that are withheld from it."""

from __future__ import annotations

import os

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.masking import is_secret_key

CONFIG_DICT_ENV_VAR = "NEMO_GYM_CONFIG_DICT"
"""Environment variable that may contain a whole configuration as YAML, instead of config files and `env.yaml`."""

NEVER_HANDED = frozenset({RUN_TOKEN_ENV_VAR, CONFIG_DICT_ENV_VAR})
"""Environment variables that servers never get, because their settings already contain what they need."""


def shown_environment() -> dict[str, str]:
    """Return the variables without secrets. New processes get only these, because other users can read them."""
    return {name: value for name, value in os.environ.items() if not _is_withheld(name)}


def withheld_environment() -> dict[str, str]:
    """Return the variables that hold secrets or are never passed to servers."""
    return {name: value for name, value in os.environ.items() if _is_withheld(name)}


def _is_withheld(name: str) -> bool:
    return name in NEVER_HANDED or is_secret_key(name)
