"""Waivers: known regressions whose gates may be violated until a date."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.explain import problems_by_key
from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.gates import Gate, parse_gate

EXAMPLE = (
    "Write a list: - {name: mcqa-june, gate: 'mcqa.accuracy >= -0.01', until: 2030-06-30, reason: 'known, ticket 17'}"
)


class Waiver(BaseModel):
    """A known regression, with the gate that it may violate until a date."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    gate: str
    """The gate that may be violated, as on the command line."""
    until: date
    """The last day of the waiver."""
    reason: str = Field(min_length=1)

    def is_expired(self, today: date) -> bool:
        """Return whether the waiver's last day is over."""
        return today > self.until

    def covers(self, gate: Gate) -> bool:
        """Return whether the waiver is for a gate. The texts of the two may be spelled differently."""
        return parse_gate(self.gate).condition == gate.condition


def read_waivers(path: Path) -> list[Waiver]:
    """Read a YAML file. Raise `DataError`, naming the file, the entry and the key, if it is not a list of waivers."""
    try:
        entries = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"waivers: file '{path}' not found. Check the path.") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(entries, list):
        raise DataError(f"{path}: not a list of waivers. {EXAMPLE}")
    waivers = [_waiver(entry, f"{path}: waiver {number}") for number, entry in enumerate(entries, start=1)]
    names = [waiver.name for waiver in waivers]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{path}: two waivers have the name '{twice}'. Give each a name of its own.")
    return waivers


def _waiver(entry: object, place: str) -> Waiver:
    try:
        waiver = Waiver.model_validate(entry)
        parse_gate(waiver.gate)
    except ValidationError as error:
        problems = "; ".join(
            f"{key}: {problem}" if key else problem for key, problem in problems_by_key(error).items()
        )
        raise DataError(f"{place}: {problems}. {EXAMPLE}") from error
    except UsageError as error:
        raise DataError(f"{place}: {error}") from error
    return waiver


def waiver_of(gate: Gate, waivers: Sequence[Waiver], today: date) -> Waiver | None:
    """Return the first waiver of a gate that has not expired, or None."""
    return next((each for each in waivers if each.covers(gate) and not each.is_expired(today)), None)
