"""Ray's options for the actors of a server."""

from __future__ import annotations

from typing import Any

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.ray import RayNeeds

PLACEMENT_GROUPS = ("PACK", "STRICT_PACK", "STRICT_SPREAD")


def processes_of(run: RunConfig, server: ServerConfig) -> int:
    """Return the number of processes of a server, each of which is an actor."""
    return server.num_workers or run.settings.processes


def options_of(server: ServerConfig, number: int) -> list[dict[str, Any]]:
    """Return Ray's options for each actor of a server."""
    needs = server.ray
    resources = {**needs.resources, **({f"node:{needs.node}": 0.001} if needs.node else {})}
    options: dict[str, Any] = {"num_cpus": needs.num_cpus, "num_gpus": needs.num_gpus, "resources": resources}
    if needs.memory:
        options["memory"] = needs.memory
    if needs.label_selector:
        options["label_selector"] = needs.label_selector
    strategy = needs.strategy or ("SPREAD" if number > 1 else "DEFAULT")
    if strategy not in PLACEMENT_GROUPS:
        return [{**options, "scheduling_strategy": strategy}] * number
    return [{**options, "scheduling_strategy": each} for each in _bundles(needs, resources, strategy, number)]


def _bundles(needs: RayNeeds, resources: dict[str, float], strategy: str, number: int) -> list[Any]:
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundle = {"CPU": needs.num_cpus, "GPU": needs.num_gpus, "memory": needs.memory, **resources}
    labels = {"bundle_label_selector": [needs.label_selector] * number} if needs.label_selector else {}
    group = placement_group(
        [{name: amount for name, amount in bundle.items() if amount}] * number, strategy=strategy, **labels
    )
    return [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range(number)]
