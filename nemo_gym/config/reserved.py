"""Top-level keys with a fixed meaning. The configuration reference of the documentation is made from this file."""

from __future__ import annotations

from typing import Literal

from nemo_gym.jsonl import JsonObject

# The classes below are never instantiated: they are tables of keys with types, defaults and meanings. They are not
# pydantic models, because every command imports this module, and building the models would dominate that import.


class SourceKeys:
    """Sources of the configuration."""

    config_paths: list[str]
    """The YAML files to merge, in order; a file may include others with the same key. Also `--config FILE`."""
    _inherit_from: str
    """In any block: inherit the keys of the block at this dotted path, and remove that block. Own keys win."""
    _copy: str
    """In any block: the same as `_inherit_from`, but the other block is kept."""
    _delete_key: str | list[str]
    """In any block: remove the keys at these dotted paths, after the files are merged and keys are inherited."""
    error_on_almost_servers: bool = True
    """Whether a block that resembles a server but is invalid is an error. Otherwise it is skipped with a warning."""


class AddressKeys:
    """Addresses and access."""

    default_host: str = "127.0.0.1"
    """The host of servers that do not set one. With the default, other machines cannot reach the run."""
    advertised_host: str | None = None
    """The host by which other machines reach this machine's servers, if that is not the one on which they listen."""
    only: list[str] | str | None = None
    """The servers to start on this machine; other machines start the others. `none` starts only the head server. Also
    `--only`."""
    join: str | None = None
    """The head server of the run that this machine's servers join, such as `http://10.0.0.5:11000`. Also `--join`."""
    use_absolute_ip: bool = False
    """Use this machine's address as `default_host`."""
    head_server: JsonObject
    """The address of the head server, see below."""
    port_range_low: int = 10_001
    """The first port for servers that do not set one."""
    port_range_high: int = 20_000
    """The last port for servers that do not set one."""
    disallowed_ports: list[int] = []  # noqa: RUF012 - never changed
    """Ports that `find_open_port` does not return to server folders that call it."""
    tls: JsonObject | None = None
    """The certificate with which this machine's servers speak TLS, and the authority that callers trust; see
    below."""
    run_token: str | Literal[False] | None = None
    """The token that calls to the servers must carry: at least 16 characters. By default, a run that other machines
    can reach creates a token. `false` opens the run to everyone who can reach it."""
    loopback_requires_token: bool = False
    """Require the token on loopback addresses, too, for a machine that other users share."""
    allowed_hosts: list[str] = []  # noqa: RUF012
    """Additional host names by which browsers and proxies may call the servers."""
    allow_policy_override: bool = False
    """Whether a row may name the endpoint, the key and the model of its model calls."""


class ModelKeys:
    """The policy model."""

    policy_base_url: str | list[str]
    """The URL of the policy's endpoint, including `/v1`. The URLs of a list are used in turn. Also `--model-url`."""
    policy_api_key: str
    """The endpoint's key. Keep it in `env.yaml`, because others can see command lines. Also `--model-api-key`."""
    policy_model_name: str
    """The model's name at the endpoint. Also `--model`."""
    policy_model: JsonObject
    """The model server that shipped configs refer to. The config of a model server defines it."""
    model_cache: str | None = None
    """The absolute path of a folder that stores the endpoint's replies, to answer equal requests. Not for training."""


class PairingKeys:
    """Another agent or model for an environment."""

    agent_config: str | None = None
    """The config file of an agent that replaces the agents of the environments. Also `--agent-type NAME[/FLAVOR]`."""
    allow_unsupported_pairing: bool = False
    """Run agents and models that an environment does not allow, with a warning. Also
    `--allow-unsupported-pairing`."""
    unsupported_pairings: list[str] = []  # noqa: RUF012 - never changed
    """The warnings about such pairings. The run itself adds them to its configuration."""


class ProcessKeys:
    """Processes."""

    replicas: int | Literal["auto"] = 1
    """The number of processes of each server that does not set its own. `auto` is one per core."""
    process_start_method: Literal["fork", "spawn"] = "fork"
    """How servers start. Forking is faster; `spawn` is for folders whose imports do not survive a fork."""
    launcher: Literal["local", "ray"] = "local"
    """Where the servers start: on this machine, or on the nodes of a Ray cluster. Also `--launcher`."""
    ray_head_node_address: str | None = None
    """The Ray cluster for `launcher: ray` and for folders that use Ray, as `HOST:6379`. By default, Ray is started on
    this machine."""
    ray_copies_code: bool = True
    """Copy server folders outside the installation to the nodes. `false` if the nodes have them at the same paths."""
    results_dir: str = "results"
    """A folder for results, for server folders that read this key. A relative path starts at the working directory."""
    cache_dir: str = "cache"
    """The folder of caches, such as separate environments. A relative path starts at the working directory."""
    uv_cache_dir: str | None = None
    """The cache folder of uv, which installs the separate environments."""
    uv_venv_dir: str | None = None
    """The folder of the separate environments. Default: `environments` in `cache_dir`."""
    profiling_enabled: bool = False
    """Profile every server from its start to its end; `GET /stats` writes the profile so far."""
    profiling_results_dirpath: str = "results/profiling"
    """The folder of the profiles, one file per server."""
    uvicorn_logging_show_200_ok: bool = False
    """Log successful requests, too."""
    global_aiohttp_connector_limit: int = 0
    """The maximum number of open connections of a server's own HTTP session; 0 for no limit."""
    global_aiohttp_connector_limit_per_host: int = 0
    """The same limit for the connections to one host."""
    global_aiohttp_client_request_debug: bool = False
    """Only for server folders that read this key. This package ignores it."""
    sandbox: JsonObject
    """The provider of sandboxes and its options, such as `{docker: {…}}`, for servers that set `sandbox_provider`."""


class RolloutKeys:
    """Rollouts and their records."""

    observability_enabled: bool = False
    """Record every model call of each rollout in `model_call_capture_dir`."""
    model_call_capture_dir: str | None = None
    """The folder of these records. The path must be absolute, because each server runs in its own folder."""
    token_id_capture: JsonObject
    """Record the token ids of model calls for training; see below."""
    skip_verification: bool = False
    """Do not grade: agents return `skip_verification_reward`, unless their own block sets this key to `false`."""
    skip_verification_reward: float = 0.0
    """The reward of rollouts that are not graded."""


class ExportKeys:
    """Experiment trackers and hubs."""

    wandb_project: str | None = None
    """The Weights & Biases project. A run is exported if all `wandb_` keys are set."""
    wandb_name: str | None = None
    """The name of the run in the project."""
    wandb_api_key: str | None = None
    """The API key of the Weights & Biases account."""
    mlflow_tracking_uri: str | None = None
    """The MLflow server. A run is exported if all `mlflow_` keys are set."""
    mlflow_tracking_token: str | None = None
    """The token of the MLflow server."""
    mlflow_experiment_name: str | None = None
    """The experiment to which the run belongs."""
    mlflow_run_name: str | None = None
    """The name of the run."""
    upload_rollouts: bool = True
    """Whether the rollouts are exported, too, and not only the metrics."""
    upload_rollouts_to_wandb: bool = True
    """The older name of `upload_rollouts`."""
    hf_token: str | None = None
    """The Hugging Face token for datasets that are not public."""
    gitlab_url: str | None = None
    """The address of the GitLab project's API. Default: the API address in `mlflow_tracking_uri`."""
    gitlab_token: str | None = None
    """The token for the project. Default: `mlflow_tracking_token`."""


class IgnoredKeys:
    """Accepted, but without effect."""

    head_server_deps: object
    """The head server needs no packages of its own."""
    allow_openai_version_skew: object
    """Folders may use any version of `openai`."""
    python_version: object
    """Separate environments use the Python that runs the command."""
    pip_install_verbose: object
    """The output of an installer is shown if it fails."""
    uv_pip_set_python: object
    """The installer always gets the interpreter of the environment."""
    skip_venv_if_present: object
    """Environments are always reused as long as their packages are the same."""
    uvicorn_timeout_worker_healthcheck: object
    """Workers are watched by the launcher."""
    global_aiohttp_tcp_keepalive_idle_seconds: object
    """Connections within a run are local or are checked before use."""
    global_aiohttp_tcp_keepalive_interval_seconds: object
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    global_aiohttp_tcp_keepalive_probes: object
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    rollout_collection_driver: object
    """There is only one collector."""


KEY_TABLES: tuple[type, ...] = (
    SourceKeys, AddressKeys, ModelKeys, PairingKeys, ProcessKeys, RolloutKeys, ExportKeys, IgnoredKeys
)  # fmt: skip
"""All keys that are not parameters of commands, by subject."""
_COMMAND_KEYS = frozenset({
    "auto_install", "component_name", "delete_from_gitlab", "dry_run", "entrypoint", "hf_collection_name",
    "hf_collection_slug", "hf_dataset_prefix", "hf_organization", "json", "model_endpoint_readiness_timeout_seconds",
    "nemo_gym_log_dir", "query", "restart_limit", "verbose",
})  # fmt: skip
"""Parameters of commands that a configuration may set for every command, even for those that do not read them."""
TOP_LEVEL_KEYS = _COMMAND_KEYS.union(*(table.__annotations__ for table in KEY_TABLES))
"""The top-level keys that any command accepts."""
RESERVED_KEYS = TOP_LEVEL_KEYS - {"policy_model", "sandbox"}
"""Top-level keys that are never the names of servers."""
