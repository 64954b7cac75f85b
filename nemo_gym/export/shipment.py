"""What is sent of a run, wherever it goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nemo_gym.errors import UserError
from nemo_gym.jsonl import read_raw_lines

COLUMN = "rollout"


class ExportFailed(UserError):
    """The place where experiments are tracked did not take a run."""


class Shipment(NamedTuple):
    """A run, as trackers are told of it."""

    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    rollouts_file: Path | None
    """None where rollouts are not to be sent."""

    def rollouts(self) -> list[str]:
        """Each rollout as a line of JSON: the one column of a table."""
        if self.rollouts_file is None or not self.rollouts_file.exists():
            return []
        return [line.raw.decode() for line in read_raw_lines(self.rollouts_file)]
