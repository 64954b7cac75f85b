"""The frozen, typed form of a whole run's configuration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from nemo_gym.config.settings import AGENT_TIER, ServerType
from nemo_gym.config.suggestions import did_you_mean, did_you_mean_or_all
from nemo_gym.errors import ServerRefNotFoundError


class Origin(NamedTuple):
    """Where a value was written: a file and its line (from 1), or the command line (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Frozen(BaseModel):
    """A value that is read and never changed."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)


LICENSES = (
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
)
"""What the licence of training data may be called."""


_NEEDED = {"huggingface": ("repo_id",), "gitlab": ("dataset_name", "version", "artifact_fpath")}
_OLD_FORMS = {"huggingface": "huggingface_identifier", "gitlab": "gitlab_identifier"}


class DatasetSource(Frozen):
    """Where a dataset can be fetched."""

    type: Literal["huggingface", "gitlab"]
    repo_id: str | None = None
    dataset_name: str | None = None
    version: str | None = None
    artifact_fpath: str | None = None

    @model_validator(mode="after")
    def _names_what_its_hub_needs(self) -> Self:
        absent = [name for name in _NEEDED[self.type] if getattr(self, name) is None]
        if absent:
            raise ValueError(f"a {self.type} source needs {' and '.join(absent)}")
        return self


def _is_complete(source: Mapping[str, Any]) -> bool:
    hub = source.get("type")
    return hub in _NEEDED and all(source.get(name) is not None for name in _NEEDED[hub])


class DatasetConfig(Frozen):
    """One dataset of an agent. Keys beyond these are ignored."""

    name: str
    type: Literal["train", "validation", "example", "benchmark"]
    jsonl_fpath: str
    num_repeats: int = Field(default=1, ge=1)
    license: str | None = Field(default=None, validate_default=True)
    """Has to be one of `LICENSES` where it is a model's training data, and is not looked at elsewhere."""
    source: DatasetSource | None = None
    huggingface_identifier: DatasetSource | None = None
    """The old form of `source`; kept in step with it, both ways."""
    gitlab_identifier: DatasetSource | None = None
    """The old form of `source`; the two old forms may stand side by side."""
    prompt_config: str | None = None
    prepare_script: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _source_and_its_old_forms_agree(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = dict(data)
        for hub, old in _OLD_FORMS.items():
            if isinstance(data.get(old), Mapping):
                message = f"{old} is deprecated; write source: {{type: {hub}, …}}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                data[old] = {**data[old], "type": hub}
                if data.get("source") is None and _is_complete(data[old]):
                    data["source"] = data[old]
        source = data.get("source")
        if isinstance(source, Mapping) and _is_complete(source):
            data.setdefault(_OLD_FORMS[source["type"]], source)
        return data

    @model_validator(mode="before")
    @classmethod
    def _licence_counts_for_training_data_only(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("type") not in ("example", "benchmark"):
            return data
        return data if data.get("license") is None else {**data, "license": str(data["license"])}

    @field_validator("license")
    @classmethod
    def _training_data_has_a_licence(cls, license_: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("type")
        if kind not in ("train", "validation") or license_ in LICENSES:
            return license_
        names = "; ".join(LICENSES)
        if license_ is None:
            raise ValueError(f"the licence of a {kind} dataset has to be told: one of {names}")
        raise ValueError(f"'{license_}' is none of the licences: {names}.{did_you_mean(license_, LICENSES)}")


class BenchmarkDatasetConfig(Frozen):
    """The dataset of a benchmark, which its own program prepares. Keys beyond these are ignored."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: str
    prepare_script: str
    prompt_config: str | None = None
    num_repeats: int = Field(default=1, ge=1)


PlacementKind = Literal["separate", "together"]


class Placement(NamedTuple):
    """`separate`: a process for each server. `together`: one process has them all, and there are `replicas` of it."""

    kind: PlacementKind = "separate"
    replicas: int = 1


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
    port: int = 0
    """0 until the launcher has bound a socket, where no port was asked for."""
    port_is_fixed: bool = False
    num_workers: int | None = None
    settings: dict[str, Any]
    """The block under the implementation, interpolations resolved, as plain Python values; an agent's also
    holds what the whole run says of skipping verification. The address is not in it unless the YAML gave it."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """Where each dotted key below the block (`datasets.0.name`) was written; "" is the block itself."""
    datasets: tuple[DatasetConfig, ...] = ()
    isolated: bool = False
    """Whether it runs in an environment of its folder's own, whatever is installed in the shared one."""
    placement: PlacementKind | None = None
    """Where it runs, whatever the run's placement is."""

    @property
    def url(self) -> str:
        """The address that other servers call."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


DEFAULT_HEAD_SERVER_PORT = 11000


class HeadConfig(Frozen):
    """Where the head server listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_HEAD_SERVER_PORT, ge=0, le=65535)
    port_is_fixed: bool = False
    expose_secrets: bool = False


class PortRange(NamedTuple):
    """The ports, both ends included, among which servers without a port of their own get theirs."""

    low: int
    high: int


DEFAULT_PORT_RANGE = PortRange(10_001, 20_000)


class WrittenAddress(NamedTuple):
    """Where a host and a port were written, each as `file:line: dotted.key`; empty where nobody wrote it."""

    host: str = ""
    port: str = ""


RUN_ID_KEY = "_ng_run_id"
"""Where the configuration that the head server tells has the run's id."""
SHORTCUTS_KEY = "_ng_shortcuts"
"""Where it has the shortcuts to the run's servers."""
WRITTEN_ADDRESSES = ("default_host", "head_server.host", "head_server.port")


class RunConfig(Frozen):
    """Everything the YAML, `env.yaml` and the command line said, read once."""

    servers: Mapping[str, ServerConfig]
    head: HeadConfig = HeadConfig()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    """Other names of agents (`environment_servers` blocks), each with the instance it stands for."""
    placement: Placement = Placement()
    port_range: PortRange = DEFAULT_PORT_RANGE
    """Where the ports are taken from that nobody has set."""
    plain: Mapping[str, Any] = Field(default_factory=dict)
    """Top-level values that are no servers, interpolations resolved; those that cannot be are left out."""
    raw: Mapping[str, Any] = Field(default_factory=dict, repr=False)
    """The merged configuration as plain Python, interpolations unresolved (the published YAML form)."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """Where those of `WRITTEN_ADDRESSES` that are set were written."""
    config_paths: tuple[str, ...] = ()
    """Every file that was read, in the order of merging."""
    run_token: str | None = Field(default=None, repr=False)
    """What its servers ask for, once they have been started; None where they ask for nothing."""
    run_id: str = ""
    """Tells the started run from all others; empty before."""
    shortcuts: Mapping[str, str] = Field(default_factory=dict)
    """Unix sockets at which servers, by any of their names, listen too: callers on this machine save half of what a
    call costs over TCP. Those of which several processes, or one with others, are served have none."""

    def servers_of(self, type_: ServerType) -> list[ServerConfig]:
        """The servers of one tier, in the order of the configuration."""
        return [server for server in self.servers.values() if server.type == type_]

    def by_any_name(self) -> Iterator[tuple[str, ServerConfig]]:
        """Every server under its own name, and agents under their other names too."""
        yield from self.servers.items()
        for alias, name in self.aliases.items():
            yield alias, self.servers[name]

    @property
    def agent_names(self) -> list[str]:
        """The names that rows may call an agent by."""
        return [name for name, server in self.by_any_name() if server.type == AGENT_TIER]

    def written_address(self, server: ServerConfig | None) -> WrittenAddress:
        """Where the address of a server was written; None is the head server."""
        if server is None:
            block, places = "head_server", {key.rpartition(".")[2]: at for key, at in self.origins.items()}
        else:
            block, places = f"{server.name}.{server.type}.{server.implementation}", dict(server.origins)
        written = {key: f"{places[key]}: {block}.{key}" for key in ("host", "port") if key in places}
        if "host" not in written and "default_host" in self.origins:
            written["host"] = f"{self.origins['default_host']}: default_host"
        return WrittenAddress(**written)

    def server(self, name: str) -> ServerConfig:
        """The server of this name, or of the agent that this name is an alias for. Raises ServerRefNotFoundError."""
        found = self.servers.get(self.aliases.get(name, name))
        if found is None:
            known = [*self.servers, *self.aliases]
            hint = did_you_mean_or_all(name, known, "servers")
            raise ServerRefNotFoundError(f"There is no server '{name}' in this configuration.{hint}")
        return found
