"""The experiment trackers Weights & Biases and MLflow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from nemo_gym.data.exporters import Exporter, ExportFailed, Shipment

COLUMN = "rollout"
_UNUSABLE = re.compile(r"[^\w\-. :/]")
"""Matches a character that MLflow rejects in metric names, such as `@`, `[` and `]` in `pass@1[avg-of-4]`."""


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


WANDB = Exporter(to_wandb, ("wandb_project", "wandb_name", "wandb_api_key"))
MLFLOW = Exporter(
    to_mlflow, ("mlflow_tracking_uri", "mlflow_tracking_token", "mlflow_experiment_name", "mlflow_run_name")
)
