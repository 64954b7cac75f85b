"""Parameters of the commands that start, check and scaffold servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.settings import Domain


class CommandSettings(BaseModel):
    """Settings of one command; every other key belongs to the configuration."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class StartSettings(CommandSettings):
    """Parameters of `ng_run`, and of whatever else starts servers."""

    nemo_gym_log_dir: Path | None = None
    """Also write each server's log to <dir>/<server>.log."""
    ready_timeout_s: float = Field(default=120.0, gt=0)
    """Give up when a server has not answered within this time."""
    restart_limit: int = Field(default=5, ge=0)
    """Start a server that died again, so many times within ten minutes; 0 ends the run with the first."""
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


class TestAllSettings(CommandSettings):
    """Parameters of `ng_test_all`."""

    fail_on_total_and_test_mismatch: bool = False
    """Fail where a server's folder has no tests."""
    delete_venvs_after_each_test: bool = False
    """Understood, and nothing to do: folders share one environment."""
    num_shards: int = Field(default=1, ge=1)
    """Into how many parts the folders are dealt out."""
    shard_index: int = Field(default=0, ge=0)
    """Which of the parts is tested, from 0."""


class PackagesSettings(EntrypointSettings):
    """Parameters of `ng_pip_list`."""

    format: Literal["columns", "freeze", "json"] | None = None
    """How they are listed."""
    outdated: bool = False
    """Only those of which there is a newer version; asks the package index."""


class PackagesJsonSettings(PackagesSettings):
    """The same with the flag that stands for a format."""

    as_json: bool = Field(default=False, alias="json")
    """The same as format=json."""


class ReinstallSettings(CommandSettings):
    """Parameters of `ng_reinstall`."""

    dry_run: bool = False
    """Only print the command."""


class PrepareBenchmarkSettings(CommandSettings):
    """Parameters of `ng_prepare_benchmark`."""

    use_cached_prepared_benchmarks: bool = False
    """Leave a benchmark alone whose data is there."""
    num_prepare_benchmark_processes: int = Field(default=1, ge=1)
    """How many are made at once."""
    prepare_script_args: dict[str, Any] = Field(default_factory=dict)
    """What their programs are given, as {name: value}."""


class ListSettings(CommandSettings):
    """Parameters of the commands that list."""

    component_name: str | None = None
    """Only this one, with all that is known of it."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""


class SearchSettings(CommandSettings):
    """Parameters of the command that searches."""

    query: str
    """What is looked for in names, domains and descriptions."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""


class ListEnvironmentsSettings(ListSettings):
    """Parameters of the command that lists environments."""

    domain: Domain | None = None
    """Only those of this domain."""
    kind: Literal["environment", "benchmark"] | None = None
    """Only those of this kind."""


class VersionSettings(CommandSettings):
    """Parameters of `ng_version`."""

    json_format: bool = Field(default=False, alias="json")
    """Print JSON."""


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
