"""Send a run's results to the experiment trackers that its configuration names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.errors import UserError
from nemo_gym.jsonl import JsonObject, read_raw_lines

COLUMN = "rollout"
_UNUSABLE = re.compile(r"[^\w\-. :/]")
"""Matches a character that MLflow rejects in metric names, such as `@`, `[` and `]` in `pass@1[avg-of-4]`."""


class ExportFailed(UserError):
    """A failed export of a run to an experiment tracker, for example because the tracker's package is missing."""


class Shipment(NamedTuple):
    """The configuration, the metrics and the rollouts of a run, to be sent to experiment trackers."""

    config: Mapping[str, object]
    metrics: Mapping[str, float | str]
    rollouts_file: Path | None
    """The rollouts file, or None if the rollouts must not be sent."""

    def rollouts(self) -> list[str]:
        """Return the rollouts as JSON strings, each for one row of a table with a single column."""
        if self.rollouts_file is None or not self.rollouts_file.exists():
            return []
        return [line.raw.decode() for line in read_raw_lines(self.rollouts_file)]


def to_wandb(shipment: Shipment, settings: Mapping[str, str]) -> None:
    """Log the run under `wandb_name`, in `wandb_project`. Raise `ExportFailed` if that fails."""
    try:
        # Import the package here, because it is optional and slow to import.
        import wandb
    except ImportError as error:
        raise ExportFailed("the package is not installed. Run: pip install wandb") from error
    try:
        wandb.login(key=settings["wandb_api_key"])
        run = wandb.init(project=settings["wandb_project"], name=settings["wandb_name"], config=dict(shipment.config))
        run.log(dict(shipment.metrics))
        if rollouts := shipment.rollouts():
            run.log({"rollouts": wandb.Table(columns=[COLUMN], data=[[line] for line in rollouts])})
        run.finish()
    except (wandb.Error, OSError, ValueError) as error:
        raise ExportFailed(str(error)) from error


def to_mlflow(shipment: Shipment, settings: Mapping[str, str]) -> None:
    """Log the run as `mlflow_run_name` in the experiment `mlflow_experiment_name`. Raise `ExportFailed` on failure."""
    try:
        # Import the package here, because it is optional and slow to import.
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise ExportFailed("the package is not installed. Run: pip install mlflow") from error
    # Set the token as an environment variable, because the MLflow client does not accept it as an argument.
    os.environ["MLFLOW_TRACKING_TOKEN"] = settings["mlflow_tracking_token"]
    try:
        mlflow.set_tracking_uri(settings["mlflow_tracking_uri"])
        mlflow.set_experiment(settings["mlflow_experiment_name"])
        with mlflow.start_run(run_name=settings["mlflow_run_name"]):
            mlflow.log_dict(dict(shipment.config), "config.yaml")
            numbers = {key: float(value) for key, value in shipment.metrics.items() if not isinstance(value, str)}
            mlflow.log_metrics({_UNUSABLE.sub("_", key): value for key, value in numbers.items()})
            if rollouts := shipment.rollouts():
                mlflow.log_dict({"columns": [COLUMN], "data": [[line] for line in rollouts]}, "rollouts.json")
    except (MlflowException, OSError, ValueError) as error:
        raise ExportFailed(str(error)) from error


class Tracker(NamedTuple):
    send: Callable[[Shipment, Mapping[str, str]], None]
    keys: tuple[str, ...]
    """The settings that it requires."""


TRACKERS = {
    "wandb": Tracker(to_wandb, ("wandb_project", "wandb_name", "wandb_api_key")),
    "mlflow": Tracker(
        to_mlflow, ("mlflow_tracking_uri", "mlflow_tracking_token", "mlflow_experiment_name", "mlflow_run_name")
    ),
}


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
    wanted = [tracker for tracker, each in TRACKERS.items() if all(plain.get(key) for key in each.keys)]
    if not wanted:
        return
    metrics = orjson.loads(metrics_file.read_bytes()) if metrics_file.exists() else []
    shipment = Shipment(config, flat_metrics(metrics), rollouts if wants_rollouts(plain) else None)
    for tracker in wanted:
        settings = {key: str(plain[key]) for key in TRACKERS[tracker].keys}
        try:
            TRACKERS[tracker].send(shipment, settings)
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
