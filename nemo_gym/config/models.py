"""Frozen, typed configuration of a whole run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from nemo_gym.config.hosts import is_loopback, loopback_of, outward
from nemo_gym.config.ray import RayNeeds
from nemo_gym.config.settings import AGENT_TIER, ServerType, http_url
from nemo_gym.config.suggestions import ADD_A_FILE, did_you_mean, did_you_mean_or_all
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.errors import ServerRefNotFoundError
from nemo_gym.jsonl import JsonObject


class Origin(NamedTuple):
    """The place where a value is set: a file and its line (from 1), or the command line (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Frozen(BaseModel):
    """The base class of the configuration's immutable models."""

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
"""Accepted license names of training data."""


_NEEDED = {
    "huggingface": ("repo_id",),
    "gitlab": ("dataset_name", "version", "artifact_fpath"),
    "url": ("url",),
}
_OLD_FORMS = {"huggingface": "huggingface_identifier", "gitlab": "gitlab_identifier"}


class DatasetSource(Frozen):
    """A location to download a dataset from."""

    type: Literal["huggingface", "gitlab", "url"]
    """The kind of location: a dataset at Hugging Face, a GitLab package or a URL."""
    repo_id: str | None = None
    """The dataset at Hugging Face, as `organization/name`."""
    dataset_name: str | None = None
    """The name of the GitLab package."""
    version: str | None = None
    """The version of the GitLab package."""
    artifact_fpath: str | None = None
    """The path of the file in the dataset or package."""
    url: str | None = Field(default=None, pattern="^https?://[^/]+/.*[^/]$")
    """The URL of the file, with `https://` or `http://`."""
    revision: str | None = None
    """The branch, tag or commit of a Hugging Face dataset; by default its main branch."""
    sha256: str | None = Field(default=None, pattern="^[0-9a-fA-F]{64}$")
    """The SHA-256 hash that the file must have. Default: the hash of the file when it was first downloaded."""

    @model_validator(mode="after")
    def _has_the_fields_of_its_hub(self) -> Self:
        absent = [name for name in _NEEDED[self.type] if getattr(self, name) is None]
        if absent:
            raise ValueError(f"a {self.type} source needs {' and '.join(absent)}")
        if self.revision is not None and self.type != "huggingface":
            raise ValueError(f"a {self.type} source does not have a revision; only a huggingface source has one")
        return self


def _is_complete(source: Mapping[str, object]) -> bool:
    needed = _NEEDED.get(str(source.get("type")))
    return needed is not None and all(source.get(name) is not None for name in needed)


class DatasetConfig(Frozen):
    """One dataset of an agent. Unknown keys are ignored."""

    name: str
    """A name for messages and lists."""
    type: Literal["train", "validation", "example", "benchmark"]
    """The purpose of the dataset. A collection selects datasets by it with `split`."""
    jsonl_fpath: str
    """The file of the rows, one JSON object per line."""
    num_repeats: int = Field(default=1, ge=1)
    """How often each row is run."""
    license: str | None = Field(default=None, validate_default=True)
    """One of `LICENSES` for training data; not checked for other types."""
    source: DatasetSource | None = None
    """The place to download the file from."""
    huggingface_identifier: DatasetSource | None = None
    """The old form of `source`; both are kept in sync."""
    gitlab_identifier: DatasetSource | None = None
    """The old form of `source`; may be set together with the other old form."""
    prompt_config: str | None = None
    """A prompt file that turns the fields of a row into the request."""
    prepare_script: str | None = None
    """A file whose function `prepare` makes the dataset."""
    prepare_args: Mapping[str, object] = Field(default_factory=dict)
    """Arguments of `prepare`."""
    prepare_dependencies: tuple[str, ...] = ()
    """Packages that the script needs. If one is not installed, the script runs in its own virtual environment."""
    size: int | None = Field(default=None, ge=1)
    """Number of rows, which the list of benchmarks shows until the file exists."""

    @model_validator(mode="before")
    @classmethod
    def _sync_source_and_its_old_forms(cls, data: object) -> object:
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
        if isinstance(source, Mapping) and _is_complete(source) and source["type"] in _OLD_FORMS:
            data.setdefault(_OLD_FORMS[source["type"]], source)
        return data

    @model_validator(mode="before")
    @classmethod
    def _license_matters_for_training_data_only(cls, data: object) -> object:
        if not isinstance(data, Mapping) or data.get("type") not in ("example", "benchmark"):
            return data
        return data if data.get("license") is None else {**data, "license": str(data["license"])}

    @field_validator("license")
    @classmethod
    def _training_data_has_a_license(cls, license_: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("type")
        if kind not in ("train", "validation") or license_ in LICENSES:
            return license_
        names = "; ".join(LICENSES)
        if license_ is None:
            raise ValueError(f"a {kind} dataset needs a license: one of {names}")
        raise ValueError(f"'{license_}' is not one of the licenses: {names}.{did_you_mean(license_, LICENSES)}")


class BenchmarkDatasetConfig(Frozen):
    """A benchmark's dataset, created by `prepare_script`. Other keys are ignored."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: str
    prepare_script: str
    prompt_config: str | None = None
    num_repeats: int = Field(default=1, ge=1)


class ServerConfig(Frozen):
    """One server instance of the configuration."""

    name: str
    """The name of the instance, which is its top-level key."""
    type: ServerType
    implementation: str
    entrypoint: str
    folder: Path
    """`<root>/<type>/<implementation>`, the folder of the entrypoint."""
    host: str
    port: int = 0
    """The port; 0 until the launcher has bound a socket, unless the configuration sets a port."""
    port_is_fixed: bool = False
    advertised_host: str = ""
    """The host by which other machines reach the server; empty if it is `host`."""
    advertised_port: int = 0
    """The port by which other machines reach the server; 0 if it is `port`."""
    num_workers: int | None = None
    settings: JsonObject
    """The block under the implementation as plain values, interpolations resolved. Agents also get the run-wide
    `skip_verification` keys. The address is included only if the YAML sets it."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """The file and line of each dotted key below the block (`datasets.0.name`); "" is the block itself."""
    datasets: tuple[DatasetConfig, ...] = ()
    isolated: bool = False
    """Whether the server always runs in its own virtual environment."""
    ray: RayNeeds = RayNeeds()
    """The resources and nodes of each process of the server, if `launcher` is `ray`."""
    scheme: str = "http"
    """`https` if the run has TLS."""
    unset_variables: tuple[str, ...] = ()
    """A message for each setting that reads an unset environment variable. Such a setting is None, and the server
    cannot start."""

    @property
    def url(self) -> str:
        """The URL at which the server listens."""
        return http_url(self.host, self.port, self.scheme)

    @property
    def local_host(self) -> str:
        """The host by which processes on the same machine reach the server."""
        return loopback_of(self.host)


DEFAULT_HEAD_SERVER_PORT = 11000


class HeadConfig(Frozen):
    """The address and the other settings of the head server."""

    host: str = "127.0.0.1"
    """The address on which the head server listens. Default: `default_host`."""
    port: int = Field(default=DEFAULT_HEAD_SERVER_PORT, ge=0, le=65535)
    """The port of the head server; 0 for any free port."""
    advertised_host: str = ""
    """The host by which other machines reach the head server. Default: `host`."""
    port_is_fixed: bool = False
    expose_secrets: bool = False
    """Return the configuration with its secrets. Ignored if other machines can reach the head server."""
    tls: Tls | None = None
    """The `tls` block of the configuration."""

    @property
    def url(self) -> str:
        """The URL at which the head server listens, or the one to join if another machine has the head server."""
        return self.url_at(self.host)

    @property
    def outward_url(self) -> str:
        """The URL by which other machines reach the head server. It is a guess if `host` is 0.0.0.0 or ::."""
        return self.url_at(self.advertised_host or outward(self.host))

    def url_at(self, host: str) -> str:
        """Return the URL of the head server with another host."""
        return http_url(host, self.port, scheme_of(self.tls))


class PortRange(NamedTuple):
    """The inclusive range from which servers without a fixed port get one."""

    low: int
    high: int


DEFAULT_PORT_RANGE = PortRange(10_001, 20_000)


class WrittenAddress(NamedTuple):
    """The places that set a host and a port, each as `file:line: dotted.key`; empty if nothing sets them."""

    host: str = ""
    port: str = ""


RUN_ID_KEY = "_ng_run_id"
"""Key of the run id in the configuration that the head server returns."""
MEMBER_KEY = "_ng_member"
"""Key of the id of the head server's part of the run, in the same configuration."""
SHORTCUTS_KEY = "_ng_shortcuts"
"""Key of the unix sockets of the run's servers, in the same configuration."""
WRITTEN_ADDRESSES = ("default_host", "head_server.host", "head_server.port", "tls")


class RunConfig(Frozen):
    """The whole configuration of a run, read once from YAML files, `env.yaml` and the command line."""

    servers: Mapping[str, ServerConfig]
    head: HeadConfig = HeadConfig()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    """Other names of agents (`environment_servers` blocks), each with the name of its agent."""
    paired_agents: tuple[str, ...] = ()
    """The agents that `agent_config` adds."""
    replaced_agents: Mapping[str, str] = Field(default_factory=dict)
    """The agents that `agent_config` replaces, each with the agent that runs its rows instead."""
    replicas: int = 1
    """The number of processes of each server that does not set its own `num_workers`."""
    port_range: PortRange = DEFAULT_PORT_RANGE
    """The ports for servers that do not set one."""
    plain: Mapping[str, object] = Field(default_factory=dict)
    """Top-level values that are not servers, interpolations resolved; unresolvable ones are omitted."""
    raw: Mapping[str, Any] = Field(default_factory=dict, repr=False)
    """The merged configuration as plain Python, interpolations unresolved (the published YAML form)."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """The file and line of each key in `WRITTEN_ADDRESSES` that is set."""
    config_paths: tuple[str, ...] = ()
    """Every file that was read, in merge order."""
    notes: tuple[str, ...] = ()
    """Messages to show to the user before the servers start."""
    run_token: str | None = Field(default=None, repr=False)
    """The token that started servers require; None if the run is open."""
    tls: Tls | None = None
    """The `tls` block, if the servers speak TLS."""
    run_id: str = ""
    """Unique id of the run; empty before it starts."""
    shortcuts: Mapping[str, str] = Field(default_factory=dict)
    """Unix sockets of servers, by name and alias, because local calls over them cost half as much as over TCP. Servers
    with several processes have none."""
    only: frozenset[str] | None = None
    """The servers that this machine starts; None for all. Other machines start the others."""
    joins: bool = False
    """Whether this machine's servers join the run of another head server."""
    member: str = ""
    """Unique id of this machine's part of the run; empty before it starts, or if the run has one machine."""

    @property
    def servers_here(self) -> dict[str, ServerConfig]:
        """The servers that this machine starts, by name."""
        return {name: each for name, each in self.servers.items() if self.only is None or name in self.only}

    @property
    def spans_machines(self) -> bool:
        """Whether other machines may start servers of the run, or call them."""
        is_advertised = self.head.advertised_host or any(
            each.advertised_host or each.advertised_port for each in self.servers.values()
        )
        return self.only is not None or self.joins or not is_loopback(self.head.host) or bool(is_advertised)

    def servers_of(self, type_: ServerType) -> list[ServerConfig]:
        """Return the servers of one tier, in configuration order."""
        return [server for server in self.servers.values() if server.type == type_]

    def by_any_name(self) -> Iterator[tuple[str, ServerConfig]]:
        """Yield every server by its own name, then agents by their aliases."""
        yield from self.servers.items()
        for alias, name in self.aliases.items():
            yield alias, self.servers[name]

    @property
    def agent_names(self) -> list[str]:
        """The names that rows may use for agents."""
        return [name for name, server in self.by_any_name() if server.type == AGENT_TIER]

    def written_address(self, server: ServerConfig | None) -> WrittenAddress:
        """Return the places that set a server's address. Pass None for the head server."""
        if server is None:
            block, places = "head_server", {key.rpartition(".")[2]: at for key, at in self.origins.items()}
        else:
            block, places = f"{server.name}.{server.type}.{server.implementation}", dict(server.origins)
        written = {key: f"{places[key]}: {block}.{key}" for key in ("host", "port") if key in places}
        if "host" not in written and "default_host" in self.origins:
            written["host"] = f"{self.origins['default_host']}: default_host"
        return WrittenAddress(**written)

    def server(self, name: str) -> ServerConfig:
        """Return the server with this name or alias. Raise ServerRefNotFoundError if there is none."""
        found = self.servers.get(self.aliases.get(name, name))
        if found is None:
            hint = did_you_mean_or_all(name, [*self.servers, *self.aliases], "servers", if_none=ADD_A_FILE)
            raise ServerRefNotFoundError(f"There is no server '{name}' in this configuration.{hint}")
        return found
