"""The data of a run that is sent to experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import UserError
from nemo_gym.jsonl import read_raw_lines

COLUMN = "rollout"


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
