"""The number of processes of each server of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError

REPLICAS_KEY = "replicas"
AUTO = "auto"


def replicas_of(plain: Mapping[str, object], places: Mapping[str, Origin]) -> int:
    """Return the number of processes that `replicas` sets. Raise `ConfigError` if the value is invalid."""
    if "placement" in plain:
        raise ConfigError(
            f"{places['placement']}: placement is not a setting: each server runs in its own processes. Remove it, "
            f"and set {REPLICAS_KEY} for several processes per server."
        )
    replicas = plain.get(REPLICAS_KEY)
    if replicas is None:
        return 1
    number = len(os.sched_getaffinity(0)) if replicas == AUTO else replicas
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(
            f"{places[REPLICAS_KEY]}: {REPLICAS_KEY} must be the number of processes (1 or more), or '{AUTO}' for "
            f"one per core, but is {replicas!r}."
        )
    return number
