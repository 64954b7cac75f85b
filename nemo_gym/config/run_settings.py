"""The settings of a run: top-level keys with a fixed meaning. The configuration reference is made from this file."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from nemo_gym.config.hosts import is_any_address
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.jsonl import JsonObject

_TOKEN = re.compile(r"[!-~]{16,}")
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f.]*:[0-9a-f:.]+")


def _as_text(given: object) -> object:
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


_Name = Annotated[str, BeforeValidator(_as_text)]
"""A text that may consist of digits only, which YAML reads as a number."""


class PortRange(NamedTuple):
    """The inclusive range from which servers without a fixed port get a port."""

    low: int
    high: int


class Keys(BaseModel):
    """The base class of the tables of keys. It ignores other keys, because server folders may read them."""

    # Build no validator before one is needed, because every command imports this module.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def checked_token(given: object) -> str | Literal[False] | None:
    """Return a run token; None if it is empty. Raise `ValueError` if it is too short or cannot be sent in a header."""
    if given is False:
        return False
    if given is None or given == "":
        return None
    if not isinstance(given, str) or not _TOKEN.fullmatch(given):
        raise ValueError(
            "it must be text of at least 16 printable ASCII characters, without spaces. Remove it to let the run "
            "create a token, or set it to false to open the run to everyone"
        )
    return given


def _check_folder(folder: Path, name: str) -> None:
    """Raise `ValueError` if a path is not absolute, because each server runs in its own folder, or is not a folder."""
    if not folder.is_absolute():
        raise ValueError(
            f"{name} must be an absolute path, because each server runs in its own folder, but is '{folder}'. Write "
            f"'{Path.cwd() / folder}'"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{name} must be a folder, but {folder} is a file")


class SourceKeys(Keys):
    """Settings of the configuration's sources."""

    config_paths: tuple[str, ...] = ()
    """The YAML files to merge, in order. A file may include other files with the same key. Also `--config FILE`."""
    inherit_from: str | None = Field(default=None, alias="_inherit_from")
    """The dotted path of a block whose keys are inherited. That block is then removed. Keys that the inheriting block
    sets itself have priority. Any block may have this key."""
    copy_of: str | None = Field(default=None, alias="_copy")
    """The same as `_inherit_from`, but the other block is kept. Any block may have this key."""
    delete_key: str | list[str] | None = Field(default=None, alias="_delete_key")
    """Dotted paths of keys to remove from a block, after files are merged and keys are inherited. Any block may
    have this key."""
    error_on_almost_servers: bool = True
    """Whether an invalid block that resembles a server is an error. Otherwise, the block is skipped with a warning."""


class AddressKeys(Keys):
    """Settings of addresses and access control."""

    default_host: str = "127.0.0.1"
    """The host of servers that do not set a host. With the default, other machines cannot reach the run."""
    advertised_host: str | None = None
    """The host by which other machines reach this machine's servers, if it is not the host on which they listen."""
    only: list[str] | str | None = None
    """The servers to start on this machine, if other machines start the rest. `none` starts only the head server. Also
    `--only`."""
    join: str | None = None
    """The head server of the run that this machine's servers join, such as `http://10.0.0.5:11000`. Also `--join`."""
    use_absolute_ip: bool = False
    """Whether servers that do not set a host use this machine's address, if `default_host` is not set either."""
    head_server: JsonObject | None = None
    """The address of the head server. See the block `head_server`."""
    port_range_high: int = Field(default=20_000, ge=1, le=65535)
    """The last port of the range for servers that do not set a port."""
    port_range_low: int = Field(default=10_001, ge=1, le=65535, validate_default=True)
    """The first port of the range for servers that do not set a port."""
    disallowed_ports: tuple[int, ...] = ()
    """Ports that `find_open_port` does not return to server folders that call it."""
    tls: JsonObject | None = None
    """The TLS certificate of this machine's servers, and the certificate authority that callers trust. See the block
    `tls`."""
    run_token: str | Literal[False] | None = Field(default=None, repr=False)
    """The token that calls to the servers must carry: at least 16 characters. By default, a run that other machines
    can reach creates a token. `false` opens the run to everyone who can reach it."""
    loopback_requires_token: StrictBool = False
    """Whether calls to loopback addresses also require the run token. Set it on a machine that other users share."""
    allowed_hosts: tuple[str, ...] = ()
    """Additional host names by which browsers and proxies may call the servers."""
    allow_policy_override: StrictBool = False
    """Whether a row may set the endpoint, the API key and the model of its model calls."""

    @field_validator("advertised_host")
    @classmethod
    def _is_reachable(cls, host: str | None) -> str | None:
        if is_any_address(host or ""):
            raise ValueError(
                f"no machine can connect to {host}. Set it to the name or the address by which other machines reach "
                "this one"
            )
        return host

    @field_validator("port_range_low")
    @classmethod
    def _is_not_above_the_last(cls, low: int, info: ValidationInfo) -> int:
        high = info.data.get("port_range_high", low)
        if low > high:
            raise ValueError(
                f"it is {low} and port_range_high is {high}, so the range is empty. Set it to {high} or less"
            )
        return low

    _token = field_validator("run_token", mode="before")(checked_token)

    @field_validator("loopback_requires_token")
    @classmethod
    def _fits_the_token(cls, closes: bool, info: ValidationInfo) -> bool:
        if closes and info.data.get("run_token") is False:
            raise ValueError("true contradicts run_token: false, which opens the run to everyone. Remove one of them")
        return closes

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _are_host_names(cls, given: object) -> tuple[str, ...]:
        names = [str(each).lower().strip("[]").rstrip(".") for each in given] if isinstance(given, list) else None
        if names is None or not all(map(_HOST.fullmatch, names)):
            raise ValueError(
                "it must be a list of host names without scheme, port and wildcards, such as [gym.internal], but is "
                f"{given!r}"
            )
        return tuple(names)

    @property
    def host(self) -> str:
        """The host of servers that do not set a host."""
        if "default_host" in self.model_fields_set or not self.use_absolute_ip:
            return self.default_host
        return socket.gethostbyname(socket.gethostname())

    @property
    def port_range(self) -> PortRange:
        """The range of ports for servers that do not set a port."""
        return PortRange(self.port_range_low, self.port_range_high)

    @property
    def is_open(self) -> bool:
        """Whether `run_token: false` opens the run to everyone who can reach its servers."""
        return self.run_token is False


class ModelKeys(Keys):
    """Settings of the policy model."""

    policy_base_url: _Name | list[str] | None = None
    """The URL of the policy's endpoint, including `/v1`. The URLs of a list are used in turn. Also `--model-url`."""
    policy_api_key: _Name | None = Field(default=None, repr=False)
    """The endpoint's API key. Keep it in `env.yaml`, because others can see command lines. Also `--model-api-key`."""
    policy_model_name: _Name | None = None
    """The model's name at the endpoint. Also `--model`."""
    policy_model: JsonObject | None = None
    """The model server that shipped configs refer to. The configs of policy model servers define it."""
    model_cache: Path | None = None
    """The absolute path of a folder in which replies are stored and reused for equal requests. Do not set this key for
    training."""

    @field_validator("model_cache")
    @classmethod
    def _is_a_folder(cls, folder: Path | None, info: ValidationInfo) -> Path | None:
        if folder is not None:
            _check_folder(folder, "it")
        # Pydantic validates the keys of the last base class of `RunSettings` first, so this one is known already.
        tokens = info.data.get("token_id_capture")
        if folder is not None and tokens and tokens.enabled:
            raise ValueError(
                "it cannot be used with token_id_capture: answers of an earlier policy must not be trained on. Remove "
                "one of the two keys"
            )
        return folder


class PairingKeys(Keys):
    """Settings that pair an environment with another agent or model."""

    agent_config: str | None = None
    """The config file of an agent that replaces the agents of the environments. Also `--agent-type NAME[/FLAVOR]`."""
    allow_unsupported_pairing: bool = False
    """Whether to run agents and models that an environment does not allow, with a warning. Also
    `--allow-unsupported-pairing`."""
    unsupported_pairings: tuple[str, ...] = ()
    """The warnings about unsupported pairings. The run itself adds this key to its configuration."""


class ProcessKeys(Keys):
    """Settings for starting and running servers."""

    replicas: int | Literal["auto"] = 1
    """The number of processes of each server that does not set its own `num_workers`. `auto` is one per core."""
    also_serve: list[str] = Field(default_factory=list)
    """The `also_serve` of each resources server that does not set its own."""
    process_start_method: Literal["fork", "spawn"] = "fork"
    """How servers start. Forking is faster; `spawn` is for folders whose imports do not survive a fork."""
    launcher: str = "local"
    """Where the servers start: on this machine, or with `ray` on the nodes of a Ray cluster. Other packages may offer
    more launchers. Also `--launcher`."""
    ray_head_node_address: str | None = None
    """The Ray cluster for `launcher: ray` and for folders that use Ray, as `HOST:6379`. By default, Ray is started on
    this machine."""
    ray_copies_code: bool = True
    """Whether to copy server folders outside the installation to the nodes. Set `false` if the nodes
    have them at the same paths."""
    results_dir: str = "results"
    """A folder for results, for server folders that read this key. A relative path starts at the working directory."""
    cache_dir: str = "cache"
    """The folder of caches, such as virtual environments. A relative path starts at the working directory."""
    uv_cache_dir: str | None = None
    """The cache folder of uv, which installs the separate virtual environments."""
    uv_venv_dir: str | None = None
    """The folder of the separate virtual environments. Default: `environments` in `cache_dir`."""
    profiling_enabled: bool = False
    """Whether to profile every server from its start to its end. `GET /stats` writes the profile so far."""
    profiling_results_dirpath: str = "results/profiling"
    """The folder of the profiles, one file per server."""
    uvicorn_logging_show_200_ok: bool = False
    """Whether to also log successful requests."""
    global_aiohttp_connector_limit: int = 0
    """The maximum number of open connections of a server's own HTTP session; 0 for no limit."""
    global_aiohttp_connector_limit_per_host: int = 0
    """The maximum number of open connections of a server's own HTTP session to one host."""
    global_aiohttp_client_request_debug: bool = False
    """Only for server folders that read this key. This package ignores it."""
    sandbox: JsonObject | None = None
    """The provider of sandboxes and its options, such as `{docker: {…}}`, for servers that set `sandbox_provider`."""

    @field_validator("replicas", mode="before")
    @classmethod
    def _is_a_number_of_processes(cls, given: object) -> object:
        if given != "auto" and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
            raise ValueError(
                f"it must be the number of processes (1 or more), or 'auto' for one per core, but is {given!r}"
            )
        return given

    @property
    def processes(self) -> int:
        """The number of processes of each server that does not set its own `num_workers`."""
        return len(os.sched_getaffinity(0)) if self.replicas == "auto" else self.replicas


class RolloutKeys(Keys):
    """Settings of rollouts and their records."""

    model_call_capture_dir: Path | None = None
    """The folder of the recorded calls. The path must be absolute, because each server runs in its own folder."""
    observability_enabled: StrictBool = False
    """Whether to record every model call of each rollout in `model_call_capture_dir`."""
    token_id_capture: TokenCaptureConfig = TokenCaptureConfig()
    """Settings for recording the token ids of model calls for training. See the block `token_id_capture`."""
    skip_verification: bool = False
    """Whether agents skip grading and return `skip_verification_reward`. Each agent's block may override this key."""
    skip_verification_reward: float = 0.0
    """The reward of rollouts that are not graded."""

    @field_validator("observability_enabled")
    @classmethod
    def _has_a_folder(cls, is_enabled: bool, info: ValidationInfo) -> bool:
        folder = info.data.get("model_call_capture_dir")
        if not is_enabled:
            return False
        if folder is None:
            raise ValueError(
                "it is true, but model_call_capture_dir is not set. Add --model-call-capture-dir /an/absolute/folder, "
                "or remove observability_enabled"
            )
        _check_folder(folder.expanduser(), "model_call_capture_dir")
        return True

    @property
    def capture_dir(self) -> Path | None:
        """The folder of recorded model calls, or None if recording is off."""
        folder = self.model_call_capture_dir
        return folder.expanduser() if folder and self.observability_enabled else None


class ExportKeys(Keys):
    """Settings of experiment trackers and hubs."""

    wandb_project: _Name | None = None
    """The Weights & Biases project. A run is exported if all `wandb_` keys are set."""
    wandb_name: _Name | None = None
    """The name of the run in the Weights & Biases project."""
    wandb_api_key: str | None = Field(default=None, repr=False)
    """The API key of the Weights & Biases account."""
    mlflow_tracking_uri: str | None = None
    """The MLflow server. A run is exported if all `mlflow_` keys are set."""
    mlflow_tracking_token: str | None = Field(default=None, repr=False)
    """The token of the MLflow server."""
    mlflow_experiment_name: _Name | None = None
    """The MLflow experiment to which the run belongs."""
    mlflow_run_name: _Name | None = None
    """The name of the run in MLflow."""
    upload_rollouts: bool = True
    """Whether to export the rollouts in addition to the metrics."""
    upload_rollouts_to_wandb: bool = True
    """The older name of `upload_rollouts`."""
    hf_token: str | None = Field(default=None, repr=False)
    """The Hugging Face token for datasets that are not public."""
    gitlab_url: str | None = None
    """The address of the GitLab project's API. Default: the API address in `mlflow_tracking_uri`."""
    gitlab_token: str | None = Field(default=None, repr=False)
    """The token for the GitLab project. Default: `mlflow_tracking_token`."""


class IgnoredKeys(Keys):
    """Settings that are accepted but have no effect."""

    head_server_deps: object = None
    """Ignored, because the head server does not need packages of its own."""
    allow_openai_version_skew: object = None
    """Ignored, because server folders may use any version of `openai`."""
    python_version: object = None
    """Ignored, because separate virtual environments use the Python that runs the command."""
    pip_install_verbose: object = None
    """Ignored, because the output of an installer is always shown if it fails."""
    uv_pip_set_python: object = None
    """Ignored, because the installer always uses the interpreter of the virtual environment."""
    skip_venv_if_present: object = None
    """Ignored, because virtual environments are always reused as long as their packages are the same."""
    uvicorn_timeout_worker_healthcheck: object = None
    """Ignored, because the launcher monitors the workers."""
    global_aiohttp_tcp_keepalive_idle_seconds: object = None
    """Ignored, because connections within a run are local or are checked before use."""
    global_aiohttp_tcp_keepalive_interval_seconds: object = None
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    global_aiohttp_tcp_keepalive_probes: object = None
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    rollout_collection_driver: object = None
    """Ignored, because there is only one collector."""


class RunSettings(SourceKeys, AddressKeys, ModelKeys, PairingKeys, ProcessKeys, RolloutKeys, ExportKeys, IgnoredKeys):
    """All top-level keys that are not parameters of commands. The base classes have one subject each."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty_values(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in given.items() if value is not None and value != ""}


_COMMAND_KEYS = frozenset({
    "auto_install", "component_name", "delete_from_gitlab", "dry_run", "entrypoint", "hf_collection_name",
    "hf_collection_slug", "hf_dataset_prefix", "hf_organization", "json", "model_endpoint_readiness_timeout_seconds",
    "nemo_gym_log_dir", "query", "restart_limit", "verbose",
})  # fmt: skip
"""Parameters of some commands that any configuration may contain. Other commands ignore them."""
TOP_LEVEL_KEYS = _COMMAND_KEYS | {field.alias or name for name, field in RunSettings.model_fields.items()}
"""The top-level keys that any command accepts."""
RESERVED_KEYS = TOP_LEVEL_KEYS - {"policy_model", "sandbox"}
"""Top-level keys that cannot be the names of servers."""
