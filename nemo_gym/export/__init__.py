"""Send a run's results to the experiment trackers that its configuration names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orjson

from nemo_gym.export.shipment import ExportFailed, Shipment
from nemo_gym.jsonl import JsonObject

TRACKERS = {
    "wandb": ("wandb_project", "wandb_name", "wandb_api_key"),
    "mlflow": ("mlflow_tracking_uri", "mlflow_tracking_token", "mlflow_experiment_name", "mlflow_run_name"),
}
"""The settings that each tracker requires. The tracker's key is also the name of its module in this package."""


def export(
    plain: Mapping[str, object],
    config: Mapping[str, object],
    metrics_file: Path,
    rollouts: Path,
    notice: Callable[[str], None],
) -> None:
    """Send the configuration, the metrics and the rollouts to each configured tracker.

    Secrets in `config` must be masked. Failures are reported with `notice` and not raised.
    """
    wanted = [tracker for tracker, keys in TRACKERS.items() if all(plain.get(key) for key in keys)]
    if not wanted:
        return
    metrics = orjson.loads(metrics_file.read_bytes()) if metrics_file.exists() else []
    shipment = Shipment(config, flat_metrics(metrics), rollouts if wants_rollouts(plain) else None)
    for tracker in wanted:
        settings = {key: str(plain[key]) for key in TRACKERS[tracker]}
        try:
            importlib.import_module(f"nemo_gym.export.{tracker}").send(shipment, settings)
        except ExportFailed as error:
            notice(f"note: export to {tracker} failed: {error}")


def wants_rollouts(plain: Mapping[str, object]) -> bool:
    """Return whether to also send the rollouts. `upload_rollouts_to_wandb` is the older name of `upload_rollouts`."""
    return plain.get("upload_rollouts", plain.get("upload_rollouts_to_wandb", True)) is not False


def flat_metrics(metrics: Sequence[JsonObject]) -> dict[str, float | str]:
    """Return the scalar metrics, keyed by `<agent>/<metric>` and `key_metrics/<agent>/<metric>`."""
    flat: dict[str, float | str] = {}
    for entry in metrics:
        agent = entry["agent_ref"]["name"]
        for prefix, group in ((agent, entry["agent_metrics"]), (f"key_metrics/{agent}", entry["key_metrics"])):
            flat |= {f"{prefix}/{key}": value for key, value in group.items() if isinstance(value, int | float | str)}
    return flat
