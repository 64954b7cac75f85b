"""Send a run's results to the experiment trackers that its configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym import plugins
from nemo_gym.errors import UserError
from nemo_gym.jsonl import read_raw_lines
from nemo_gym.schemas.rollout import AgentMetrics


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


class Exporter(NamedTuple):
    """An experiment tracker."""

    send: Callable[[Shipment, Mapping[str, str]], None]
    """Send a run. The second argument contains the settings in `keys`. Raise `ExportFailed` if that fails."""
    keys: tuple[str, ...]
    """The top-level settings that it requires. A run is sent if all of them are set."""


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
    exporters: dict[str, Exporter] = plugins.offered(plugins.EXPORTERS)
    wanted = {name: each for name, each in exporters.items() if all(plain.get(key) for key in each.keys)}
    if not wanted:
        return
    metrics = orjson.loads(metrics_file.read_bytes()) if metrics_file.exists() else []
    shipment = Shipment(config, flat_metrics(metrics), rollouts if wants_rollouts(plain) else None)
    for name, exporter in wanted.items():
        try:
            exporter.send(shipment, {key: str(plain[key]) for key in exporter.keys})
        except ExportFailed as error:
            notice(f"note: export to {name} failed: {error}")


def wants_rollouts(plain: Mapping[str, object]) -> bool:
    """Return whether to also send the rollouts. `upload_rollouts_to_wandb` is the older name of `upload_rollouts`."""
    return plain.get("upload_rollouts", plain.get("upload_rollouts_to_wandb", True)) is not False


def flat_metrics(metrics: Sequence[AgentMetrics]) -> dict[str, float | str]:
    """Return the scalar metrics, keyed by `<agent>/<metric>` and `key_metrics/<agent>/<metric>`."""
    flat: dict[str, float | str] = {}
    for entry in metrics:
        agent = entry["agent_ref"]["name"]
        for prefix, group in ((agent, entry["agent_metrics"]), (f"key_metrics/{agent}", entry["key_metrics"])):
            flat |= {f"{prefix}/{key}": value for key, value in group.items() if isinstance(value, int | float | str)}
    return flat
