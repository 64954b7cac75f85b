"""Parameters of the commands that start, check and scaffold servers."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class CommandSettings(BaseModel):
    """Settings of one command; every other key belongs to the configuration."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class StartSettings(CommandSettings):
    """Parameters of `ng_run`, and of whatever else starts servers."""

    nemo_gym_log_dir: Path | None = None
    """Also write each server's log to <dir>/<server>.log."""
    ready_timeout_s: float = Field(default=120.0, gt=0)
    """Give up when a server has not answered within this time."""
    model_endpoint_readiness_timeout_seconds: float = Field(default=600.0, ge=0)
    """Wait this long for the endpoints behind model servers; 0 does not wait."""
    auto_install: bool = False
    """Give each folder whose requirements are not met an environment of its own."""
    dry_run: bool = False
    """Build every server from its settings, then end."""


class EntrypointSettings(CommandSettings):
    """Parameters of the commands that work on one environment's folder."""

    entrypoint: str
    """The folder, as resources_servers/<name>."""


class TestSettings(EntrypointSettings):
    """Parameters of `ng_test`."""

    should_validate_data: bool = False
    """Also check the example rows, their metrics and their rollouts."""


class CheckSettings(EntrypointSettings):
    """Parameters of `ng_check`."""

    rows_jsonl_fpath: Path | None = None
    """Further rows that the oracle has to solve, beside the examples."""
    write_examples: bool = False
    """Also write example_rollouts.jsonl, played by the oracle, and example_metrics.json."""


class StatusSettings(CommandSettings):
    """Parameters of `ng_status`."""

    as_json: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""


class NoSettings(CommandSettings):
    """A command that takes only a configuration."""
