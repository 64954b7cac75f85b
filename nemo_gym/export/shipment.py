"""The part of a run that is sent to experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import UserError
from nemo_gym.jsonl import read_raw_lines

COLUMN = "rollout"


class ExportFailed(UserError):
    """The error if a run cannot be sent to an experiment tracker, for example because its package is missing."""


class Shipment(NamedTuple):
    """The data of a run for experiment trackers."""

    config: Mapping[str, object]
    metrics: Mapping[str, float | str]
    rollouts_file: Path | None
    """The file of rollouts. None if rollouts are not to be sent."""

    def rollouts(self) -> list[str]:
        """Return each rollout as a JSON line, for a table with a single column."""
        if self.rollouts_file is None or not self.rollouts_file.exists():
            return []
        return [line.raw.decode() for line in read_raw_lines(self.rollouts_file)]
