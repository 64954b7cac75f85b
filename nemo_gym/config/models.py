"""Frozen, typed configuration of a whole run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from nemo_gym.config.hosts import is_loopback, loopback_of, outward
from nemo_gym.config.ray import RayNeeds
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.settings import AGENT_TIER, ServerType, http_url
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.errors import ServerRefNotFoundError
from nemo_gym.jsonl import JsonObject
from nemo_gym.text import ADD_A_FILE, did_you_mean, did_you_mean_or_all


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
    """A location from which a dataset is downloaded."""

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
    """The name of the dataset in messages and lists."""
    type: Literal["train", "validation", "example", "benchmark"]
    """The purpose of the dataset. The parameter `split` of a collection selects datasets by their type."""
    jsonl_fpath: str
    """The file of the rows, one JSON object per line."""
    num_repeats: int = Field(default=1, ge=1)
    """The number of rollouts per row."""
    license: str | None = Field(default=None, validate_default=True)
    """The license. For `train` and `validation`, it must be one of `LICENSES`. It is not checked for other types."""
    source: DatasetSource | None = None
    """The location from which the file is downloaded."""
    huggingface_identifier: DatasetSource | None = None
    """The old form of `source`. Both are kept in sync."""
    gitlab_identifier: DatasetSource | None = None
    """The old form of `source`. It may be set together with `huggingface_identifier`."""
    prompt_config: str | None = None
    """A prompt file that turns the fields of a row into the request."""
    prepare_script: str | None = None
    """A Python file whose function `prepare` creates the dataset."""
    prepare_args: Mapping[str, object] = Field(default_factory=dict)
    """Keyword arguments that are passed to `prepare`."""
    prepare_dependencies: tuple[str, ...] = ()
    """Packages that `prepare_script` needs. If one is not installed, the script runs in a virtual environment."""
    size: int | None = Field(default=None, ge=1)
    """The number of rows, for the list of benchmarks. Without it, the list shows the number of rows in the file."""

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


class PlacedServer(Frozen):
    name: str
    """The name of the instance, which is its top-level key."""
    type: ServerType
    implementation: str
    entrypoint: str
    folder: Path
    """`<root>/<type>/<implementation>`, the folder of the entrypoint."""
    host: str
    port: int = 0
    """The port. If the configuration does not set one, it is 0 until the launcher has bound a socket."""
    settings: JsonObject
    """The server's settings as plain values, with resolved interpolations. Agents also get the run-wide
    `skip_verification` keys. The address is included only if the YAML sets it."""


class ServerConfig(PlacedServer):
    port_is_fixed: bool = False
    advertised_host: str = ""
    """The host by which other machines reach the server. It is empty if they use `host`."""
    advertised_port: int = 0
    """The port by which other machines reach the server. It is 0 if they use `port`."""
    num_workers: int | None = None
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """The file and line of each dotted key below the block (`datasets.0.name`), and of the block itself (`""`)."""
    datasets: tuple[DatasetConfig, ...] = ()
    isolated: bool = False
    """Whether the server always runs in its own virtual environment."""
    ray: RayNeeds = RayNeeds()
    """The resources and nodes of each process of the server, if `launcher` is `ray`."""
    scheme: str = "http"
    """`http`, or `https` if the run has TLS."""
    unset_variables: tuple[str, ...] = ()
    """A message for each setting that reads an unset environment variable. The setting is then None, and the server
    cannot start."""

    @property
    def url(self) -> str:
        return http_url(self.host, self.port, self.scheme)

    @property
    def local_host(self) -> str:
        """The host by which processes on the same machine reach the server."""
        return loopback_of(self.host)

    def referred(self, setting: str) -> str:
        """Return the name in a setting that is a `{type, name}` reference, or an empty string if it is not one."""
        reference = self.settings.get(setting)
        return str(reference.get("name", "")) if isinstance(reference, Mapping) else ""


DEFAULT_HEAD_SERVER_PORT = 11000


class HeadConfig(Frozen):
    """The address and the other settings of the head server."""

    host: str = "127.0.0.1"
    """The address on which the head server listens. Default: `default_host`."""
    port: int = Field(default=DEFAULT_HEAD_SERVER_PORT, ge=0, le=65535)
    """The port of the head server. 0 means any free port."""
    advertised_host: str = ""
    """The host by which other machines reach the head server. Default: `host`."""
    port_is_fixed: bool = False
    expose_secrets: bool = False
    """Whether the configuration that the head server returns includes secrets. Ignored if other machines can reach the
    head server."""
    tls: Tls | None = None

    @property
    def url(self) -> str:
        """The URL of the head server. If this machine joins a run, the head server may be on another machine."""
        return self.url_at(self.host)

    @property
    def outward_url(self) -> str:
        """The URL by which other machines reach the head server. It may be wrong if derived from 0.0.0.0 or ::."""
        return self.url_at(self.advertised_host or outward(self.host))

    def url_at(self, host: str) -> str:
        return http_url(host, self.port, scheme_of(self.tls))


class WrittenAddress(NamedTuple):
    """The places that set a host and a port, each as `file:line: dotted.key`, or empty if the default applies."""

    host: str = ""
    port: str = ""


WRITTEN_ADDRESSES = ("default_host", "head_server.host", "head_server.port", "tls")


class RunConfig(Frozen):
    """The whole configuration of a run, read once from YAML files, `env.yaml` and the command line."""

    servers: Mapping[str, ServerConfig]
    head: HeadConfig = HeadConfig()
    aliases: Mapping[str, str] = Field(default_factory=dict)
    """The aliases that `environment_servers` blocks define, each mapped to its agent's name."""
    paired_agents: tuple[str, ...] = ()
    """The agents that `agent_config` adds."""
    replaced_agents: Mapping[str, str] = Field(default_factory=dict)
    """The agents that `agent_config` replaces, each with the agent that runs its rows instead."""
    settings: RunSettings = RunSettings()
    """The top-level keys with a fixed meaning."""
    plain: Mapping[str, object] = Field(default_factory=dict)
    """Top-level values that are not servers, with resolved interpolations. Unresolvable values are omitted."""
    raw: Mapping[str, Any] = Field(default_factory=dict, repr=False)
    """The merged configuration as plain data, with unresolved interpolations."""
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)
    """The file and line of each key in `WRITTEN_ADDRESSES` that is set."""
    config_paths: tuple[str, ...] = ()
    """Every file that was read, in merge order."""
    notes: tuple[str, ...] = ()
    """Messages to show to the user before the servers start."""
    run_token: str | None = Field(default=None, repr=False)
    """The token that the servers require, or None if they require no token."""
    tls: Tls | None = None
    run_id: str = ""
    """The unique id of the run. It is empty before the run starts."""
    shortcuts: Mapping[str, str] = Field(default_factory=dict)
    """The unix sockets of servers with a single process, by name and alias. A local call over a unix socket costs half
    as much as one over TCP."""
    only: frozenset[str] | None = None
    """The servers that this machine starts, if other machines start the rest. None means all servers."""
    joins: bool = False
    """Whether this machine's servers join the run of another head server."""
    member: str = ""
    """The unique id of this machine's part of the run. Empty if the run has one machine, or has not started."""

    @property
    def servers_here(self) -> dict[str, ServerConfig]:
        """The servers that this machine starts, by name."""
        return {name: each for name, each in self.servers.items() if self.only is None or name in self.only}

    @property
    def spans_machines(self) -> bool:
        """Whether other machines can start servers of the run or call its servers."""
        is_advertised = self.head.advertised_host or any(
            each.advertised_host or each.advertised_port for each in self.servers.values()
        )
        return self.only is not None or self.joins or not is_loopback(self.head.host) or bool(is_advertised)

    def servers_of(self, type_: ServerType) -> list[ServerConfig]:
        """Return the servers of one type, in the order of the configuration."""
        return [server for server in self.servers.values() if server.type == type_]

    def with_servers(self, servers: Mapping[str, ServerConfig]) -> Self:
        """Return the run with only these servers, and without the aliases of other agents."""
        aliases = {alias: name for alias, name in self.aliases.items() if name in servers}
        return self.model_copy(update={"servers": servers, "aliases": aliases})

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
        """Return the places that set a server's address. If `server` is None, use the head server."""
        if server is None:
            block, places = "head_server", {key.rpartition(".")[2]: at for key, at in self.origins.items()}
        else:
            block, places = f"{server.name}.{server.type}.{server.implementation}", dict(server.origins)
        written = {key: f"{places[key]}: {block}.{key}" for key in ("host", "port") if key in places}
        if "host" not in written and "default_host" in self.origins:
            written["host"] = f"{self.origins['default_host']}: default_host"
        return WrittenAddress(**written)

    def server(self, name: str) -> ServerConfig:
        """Return the server with this name or alias. Raise ServerRefNotFoundError if it does not exist."""
        found = self.servers.get(self.aliases.get(name, name))
        if found is None:
            hint = did_you_mean_or_all(name, [*self.servers, *self.aliases], "servers", if_none=ADD_A_FILE)
            raise ServerRefNotFoundError(f"There is no server '{name}' in this configuration.{hint}")
        return found
