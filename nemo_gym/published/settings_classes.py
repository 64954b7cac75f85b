"""Settings classes that only code for the published package uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemo_gym.cli.settings import CommandSettings
from nemo_gym.config.models import Frozen


class VersionConfig(CommandSettings):
    """Parameters of `ng version`."""

    json_format: bool = Field(default=False, alias="json")
    """Print JSON."""


class BenchmarkDatasetConfig(Frozen):
    """A benchmark's dataset, created by `prepare_script`. Other keys are ignored."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: str
    prepare_script: str
    prompt_config: str | None = None
    num_repeats: int = Field(default=1, ge=1)
