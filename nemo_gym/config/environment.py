"""The environment variables that server processes inherit, and those with secrets, which they do not inherit."""

from __future__ import annotations

import os

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.masking import is_secret_key

CONFIG_DICT_ENV_VAR = "NEMO_GYM_CONFIG_DICT"
"""The environment variable that may hold a whole configuration as YAML, instead of config files and `env.yaml`."""

NEVER_HANDED = frozenset({RUN_TOKEN_ENV_VAR, CONFIG_DICT_ENV_VAR})
"""Environment variables that are never passed to servers, because servers receive these values as settings."""


def shown_environment() -> dict[str, str]:
    """Return the environment variables that do not contain secrets.

    New processes start with only these variables, because other users can read the environment in which a process
    starts.
    """
    return {name: value for name, value in os.environ.items() if not _is_withheld(name)}


def withheld_environment() -> dict[str, str]:
    """Return the environment variables that hold secrets, and those in `NEVER_HANDED`."""
    return {name: value for name, value in os.environ.items() if _is_withheld(name)}


def _is_withheld(name: str) -> bool:
    return name in NEVER_HANDED or is_secret_key(name)
