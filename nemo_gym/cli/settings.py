"""Parameters of the commands, from which their flags and help are built."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.settings import Domain
from nemo_gym.jsonl import JsonObject


class CommandSettings(BaseModel):
    """Settings of one command. Other keys are ignored, because they belong to the configuration."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class JsonSettings(CommandSettings):
    """Parameters of commands that print a table, such as `ng env status`."""

    as_json: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""


class NamedSettings(JsonSettings):
    """Parameters of commands that take the name of an environment."""

    name: str | None = None
    """The name of an environment or benchmark, as `ng list environments` prints it."""
    kind: Literal["environment", "benchmark"] | None = None
    """`benchmark` selects the benchmark if an environment has the same name."""


class StartSettings(CommandSettings):
    """Parameters of `ng_run` and of other commands that start servers."""

    only: str | list[str] | None = None
    """Start only these servers on this machine; other machines start the others; may be repeated. `none` starts only
    the head server."""
    join: str | None = None
    """The head server of the run that these servers join, such as http://10.0.0.5:11000."""
    join_timeout_s: float = Field(default=600.0, gt=0)
    """With `only`, a collection waits this many seconds for the other machines."""
    launcher: str = "local"
    """Start the servers on this machine, or with `ray` on the nodes of a Ray cluster. Packages may offer others."""
    nemo_gym_log_dir: Path | None = None
    """Also write each server's log to <dir>/<server>.log."""
    ready_timeout_s: float = Field(default=120.0, gt=0)
    """Give up if a server has not answered after this many seconds."""
    restart_limit: int = Field(default=5, ge=0)
    """Restart a crashed server at most this many times within ten minutes; 0 ends the run at the first crash."""
    model_endpoint_readiness_timeout_seconds: float = Field(default=600.0, ge=0)
    """Seconds to wait for the endpoints of model servers; 0 disables the wait. If this is not set, wait only 60 s
    for a port that refuses connections. A host name must always resolve within about 10 s."""
    auto_install: bool = False
    """Build a separate virtual environment for each folder whose requirements are not met."""
    dry_run: bool = False
    """Build every server from its settings, then exit."""


class ValidateSettings(NamedSettings):
    """Parameters of `ng env validate`."""

    ready_timeout_s: float = Field(default=30.0, gt=0)
    """Give up if a server cannot be built within this many seconds."""


class EntrypointSettings(CommandSettings):
    """Parameters of the commands that work on one environment's folder."""

    entrypoint: str
    """The environment's folder, such as resources_servers/<name>."""


class TestSettings(EntrypointSettings):
    """Parameters of `ng env test`."""

    should_validate_data: bool = False
    """Also check the example rows, their metrics and their rollouts."""


class TestAllSettings(CommandSettings):
    """Parameters of `ng env test`."""

    fail_on_total_and_test_mismatch: bool = False
    """Fail if a server folder has no tests."""
    delete_venvs_after_each_test: bool = False
    """Accepted but ignored, because folders share one virtual environment."""
    num_shards: int = Field(default=1, ge=1)
    """Number of parts to split the folders into."""
    shard_index: int = Field(default=0, ge=0)
    """Index of the part to test. The first part has index 0."""


class PackagesSettings(EntrypointSettings):
    """Parameters of `ng env packages`."""

    format: Literal["columns", "freeze", "json"] | None = None
    """Format of the list, as in `pip list --format`."""
    outdated: bool = False
    """Only list packages that have a newer version; this queries the package index."""
    as_json: bool = Field(default=False, alias="json")
    """The same as format=json."""


class ReinstallSettings(CommandSettings):
    """Parameters of `ng dev reinstall`."""

    dry_run: bool = False
    """Only print the command."""


class PrepareBenchmarkSettings(CommandSettings):
    """Parameters of `ng eval prepare`."""

    use_cached_prepared_benchmarks: bool = False
    """Skip benchmarks whose data exists already."""
    num_prepare_benchmark_processes: int = Field(default=1, ge=1)
    """Number of benchmarks to prepare in parallel."""
    skip_bad: bool = False
    """Leave out rows of the source that cannot be converted, and report them."""
    prepare_script_args: JsonObject = Field(default_factory=dict)
    """Arguments of the prepare scripts, as {name: value}."""


class ListSettings(JsonSettings):
    """Parameters of the `ng list` commands."""

    component_name: str | None = None
    """Only show the component of this name, with all its details."""


class ListAgentsSettings(ListSettings):
    """Parameters of `ng list agents`."""

    environment: str | None = Field(default=None, alias="for")
    """Show which agents fit this environment, and why the others do not. `ng list environments` prints the names."""


class SearchSettings(JsonSettings):
    """Parameters of `ng search`."""

    query: str
    """Text to search for in names, domains and descriptions."""


class ListEnvironmentsSettings(ListSettings):
    """Parameters of `ng list environments`."""

    domain: Domain | None = None
    """Only list environments of this domain."""
    kind: Literal["environment", "benchmark"] | None = None
    """Only list environments, or only benchmarks."""
    place: str | None = Field(default=None, alias="from")
    """List the tasks of an environment of another framework, KIND:ADDRESS."""
    split: str | None = None
    """The split of the environment of --from. By default, its first one."""


class CheckSettings(EntrypointSettings):
    """Parameters of `ng env check`."""

    rows_jsonl_fpath: Path | None = None
    """Further rows that the oracle must solve, in addition to the examples."""
    dataset: Literal["train", "validation", "benchmark", "example"] | None = None
    """Also play a sample of the environment's datasets of this type. Missing files are made or downloaded."""
    sample: int = Field(default=200, ge=1)
    """Number of rows in the sample of `dataset`."""
    seed: int = 0
    """The same seed draws the same sample."""
    write_examples: bool = False
    """Also write example_rollouts.jsonl, played by the oracle, and example_metrics.json."""
    unpublished: bool = False
    """Do not check for the parts that only a folder for others needs: a README, tests, exactly five example rows."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds that each promise may take. If one takes longer, the check ends."""
    attack: bool = False
    """Play known attacks on the reward instead of the checks."""
    attack_margin: float | None = Field(default=None, ge=0, lt=1)
    """Attacks may earn this share of the way from the reward for doing nothing to the oracle's. Default: 0.5, or that
    of oracle.py."""
    attack_rollouts: Path | None = None
    """Write the rollouts of the attacks that earned a reward to this file. `ng view` shows them."""


class NoSettings(CommandSettings):
    """No parameters, for commands that take only a configuration."""
