"""The frozen, typed form of a whole run's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.settings import ServerType


class Origin(NamedTuple):
    """Where a value was written: a file and its line (from 1), or the command line (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Frozen(BaseModel):
    """A value that is read and never changed."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)


class DatasetSource(Frozen):
    """Where a dataset can be fetched."""

    type: Literal["huggingface", "gitlab"]
    repo_id: str | None = None
    dataset_name: str | None = None
    version: str | None = None
    artifact_fpath: str | None = None


class DatasetConfig(Frozen):
    """One dataset of an agent."""

    name: str
    type: Literal["train", "validation", "example", "benchmark"]
    jsonl_fpath: str
    num_repeats: int = Field(default=1, ge=1)
    license: str | None = None
    source: DatasetSource | None = None
    prompt_config: str | None = None
    prepare_script: str | None = None


class ServerConfig(Frozen):
    """One server instance of the configuration."""

    name: str
    """The instance name: the top-level key."""
    type: ServerType
    implementation: str
    entrypoint: str
    folder: Path
    """`<root>/<type>/<implementation>`, where the entrypoint lies."""
    host: str
    port: int
    """0 until the launcher has bound a socket, where no port was asked for."""
    port_is_fixed: bool = False
    num_workers: int | None = None
    settings: dict[str, Any]
    """The whole block under the implementation, interpolations resolved, as plain Python values."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """Where each dotted key below the block (`datasets.0.name`) was written; "" is the block itself."""
    datasets: tuple[DatasetConfig, ...] = ()

    @property
    def url(self) -> str:
        """The address that other servers call."""
        return f"http://{self.host}:{self.port}"


class HeadConfig(Frozen):
    """Where the head server listens."""

    host: str = "127.0.0.1"
    port: int = 11000
    port_is_fixed: bool = False
    expose_secrets: bool = False


class RunConfig(Frozen):
    """Everything the YAML, `env.yaml` and the command line said, read once."""

    servers: Mapping[str, ServerConfig]
    head: HeadConfig = HeadConfig()
    plain: Mapping[str, Any] = Field(default_factory=dict)
    """Top-level values that are no servers, interpolations resolved; those that cannot be are left out."""
    raw: Mapping[str, Any] = Field(default_factory=dict, repr=False)
    """The merged configuration as plain Python, interpolations unresolved (the published YAML form)."""
    config_paths: tuple[str, ...] = ()
    """Every file that was read, in the order of merging."""

    def servers_of(self, type_: ServerType) -> list[ServerConfig]:
        """The servers of one tier, in the order of the configuration."""
        return [server for server in self.servers.values() if server.type == type_]
