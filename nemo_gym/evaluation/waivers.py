"""Waivers: permissions to violate a gate until a date, because of a known regression."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.explain import explained_in_a_line
from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.gates import Gate, parse_gate

EXAMPLE = (
    "Write a list: - {name: mcqa-june, gate: 'mcqa.accuracy >= -0.01', until: 2030-06-30, reason: 'known, ticket 17'}"
)


class Waiver(BaseModel):
    """Permission to violate one gate until a date, because of a known regression."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    gate: str
    """The gate that may be violated, in the syntax of the command line."""
    until: date
    """The last day on which the waiver is valid."""
    reason: str = Field(min_length=1)

    def is_expired(self, today: date) -> bool:
        return today > self.until

    def covers(self, gate: Gate) -> bool:
        """Return whether the waiver is for this gate, even if the waiver spells the gate differently."""
        return parse_gate(self.gate).condition == gate.condition


def read_waivers(path: Path) -> list[Waiver]:
    """Read waivers from a YAML file. Raise `DataError`, with the file, the entry and the key, if they are invalid."""
    try:
        entries = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"waivers: file '{path}' not found. Check the path.") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: cannot be read as YAML: {' '.join(str(error).split())}. Correct the file or its permissions."
        ) from error
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
        raise DataError(f"{place}: {explained_in_a_line(error)}. {EXAMPLE}") from error
    except UsageError as error:
        raise DataError(f"{place}: {error}") from error
    return waiver


def waiver_of(gate: Gate, waivers: Sequence[Waiver], today: date) -> Waiver | None:
    """Return the first waiver for a gate, ignoring expired waivers, or None."""
    return next((each for each in waivers if each.covers(gate) and not each.is_expired(today)), None)
