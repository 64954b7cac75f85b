"""Send what a run came to where experiments are tracked, if its configuration names such a place."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.export.shipment import ExportFailed, Shipment

PLACES = {
    "wandb": ("wandb_project", "wandb_name", "wandb_api_key"),
    "mlflow": ("mlflow_tracking_uri", "mlflow_tracking_token", "mlflow_experiment_name", "mlflow_run_name"),
}
"""Each place, which is a module of this package, and the settings that name it: all of them, or it is not meant."""


def export(
    plain: Mapping[str, Any],
    config: Mapping[str, Any],
    metrics_file: Path,
    rollouts: Path,
    notice: Callable[[str], None],
) -> None:
    """Send the configuration, whose secrets are masked, the metrics and the rollouts; what fails is only noticed."""
    wanted = [place for place, keys in PLACES.items() if all(plain.get(key) for key in keys)]
    if not wanted:
        return
    metrics = orjson.loads(metrics_file.read_bytes()) if metrics_file.exists() else []
    shipment = Shipment(config, flat_metrics(metrics), rollouts if wants_rollouts(plain) else None)
    for place in wanted:
        settings = {key: str(plain[key]) for key in PLACES[place]}
        try:
            importlib.import_module(f"nemo_gym.export.{place}").send(shipment, settings)
        except ExportFailed as error:
            notice(f"note: nothing was sent to {place}: {error}")


def wants_rollouts(plain: Mapping[str, Any]) -> bool:
    """Whether the rollouts are sent, too; `upload_rollouts_to_wandb` is the older name of that setting."""
    return plain.get("upload_rollouts", plain.get("upload_rollouts_to_wandb", True)) is not False


def flat_metrics(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`<agent>/<metric>` and `key_metrics/<agent>/<metric>`, where they are plain values."""
    flat: dict[str, Any] = {}
    for entry in metrics:
        agent = entry["agent_ref"]["name"]
        for prefix, told in ((agent, entry["agent_metrics"]), (f"key_metrics/{agent}", entry["key_metrics"])):
            flat |= {f"{prefix}/{key}": value for key, value in told.items() if isinstance(value, int | float | str)}
    return flat
