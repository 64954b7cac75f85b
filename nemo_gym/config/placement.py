"""Which servers share a process, and how many processes there are of each kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, get_args

from nemo_gym.config.models import Origin, Placement, PlacementKind
from nemo_gym.config.suggestions import did_you_mean
from nemo_gym.errors import ConfigError

PLACEMENT_KEY = "placement"
REPLICAS_KEY = "replicas"
AUTO = "auto"


def placement_of(plain: Mapping[str, Any], places: Mapping[str, Origin]) -> Placement:
    """What `placement` and `replicas` of the configuration come to. Raises ConfigError where they come to nothing."""
    kind, replicas = plain.get(PLACEMENT_KEY), plain.get(REPLICAS_KEY)
    kinds = get_args(PlacementKind)
    if kind is not None and kind not in kinds:
        raise ConfigError(
            f"{places[PLACEMENT_KEY]}: {PLACEMENT_KEY} has to be {' or '.join(kinds)}, and is {kind!r}."
            f"{did_you_mean(str(kind), kinds)}"
        )
    if replicas is None:
        return Placement(kind or "separate")
    number = len(os.sched_getaffinity(0)) if replicas == AUTO else replicas
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(
            f"{places[REPLICAS_KEY]}: {REPLICAS_KEY} is the number of processes, from 1, or '{AUTO}' for one on each "
            f"core, and here it is {replicas!r}."
        )
    if kind == "separate":
        raise ConfigError(
            f"{places[REPLICAS_KEY]}: {REPLICAS_KEY} says how many processes have all servers together, but "
            f"{PLACEMENT_KEY} is 'separate'. Leave one of them out, or give single servers their own number of "
            "processes: num_workers in the server's block."
        )
    return Placement("together", number)
