"""Which variables of the environment a server's process shows to everybody, and which it does not."""

from __future__ import annotations

import os

from nemo_gym.config.access import RUN_TOKEN_ENV_VAR
from nemo_gym.config.masking import is_secret_key

CONFIG_DICT_ENV_VAR = "NEMO_GYM_CONFIG_DICT"
"""May hold a whole configuration as YAML, for a process that is to read nothing else."""

NEVER_HANDED = frozenset({RUN_TOKEN_ENV_VAR, CONFIG_DICT_ENV_VAR})
"""A server is told what is its own of them in its settings."""


def shown_environment() -> dict[str, str]:
    """The variables with which a process is started: whoever may look at it sees them, so no secret is among them."""
    return {name: value for name, value in os.environ.items() if not _is_withheld(name)}


def withheld_environment() -> dict[str, str]:
    """The other variables."""
    return {name: value for name, value in os.environ.items() if _is_withheld(name)}


def _is_withheld(name: str) -> bool:
    return name in NEVER_HANDED or is_secret_key(name)
