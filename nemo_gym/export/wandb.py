"""Send a run to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.export.shipment import COLUMN, ExportFailed, Shipment


def send(shipment: Shipment, settings: Mapping[str, str]) -> None:
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
