"""Top-level keys with a fixed meaning. The configuration reference in the docs is generated from this file."""

from __future__ import annotations

from typing import Literal

from nemo_gym.jsonl import JsonObject

# The classes below are never instantiated. They are tables of keys with types, defaults and meanings. They are not
# pydantic models, because every command imports this module, and building models would take most of the import time.


class SourceKeys:
    """Settings of the configuration's sources."""

    config_paths: list[str]
    """The YAML files to merge, in order. A file may include other files with the same key. Also `--config FILE`."""
    _inherit_from: str
    """The dotted path of a block whose keys are inherited. That block is then removed. Keys that the inheriting block
    sets itself have priority. Any block may have this key."""
    _copy: str
    """The same as `_inherit_from`, but the other block is kept. Any block may have this key."""
    _delete_key: str | list[str]
    """Dotted paths of keys to remove from a block, after files are merged and keys are inherited. Any block may
    have this key."""
    error_on_almost_servers: bool = True
    """Whether an invalid block that resembles a server is an error. Otherwise, the block is skipped with a warning."""


class AddressKeys:
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
    head_server: JsonObject
    """The address of the head server. See the block `head_server`."""
    port_range_low: int = 10_001
    """The first port of the range for servers that do not set a port."""
    port_range_high: int = 20_000
    """The last port of the range for servers that do not set a port."""
    disallowed_ports: list[int] = []  # noqa: RUF012 - never changed
    """Ports that `find_open_port` does not return to server folders that call it."""
    tls: JsonObject | None = None
    """The TLS certificate of this machine's servers, and the certificate authority that callers trust. See the block
    `tls`."""
    run_token: str | Literal[False] | None = None
    """The token that calls to the servers must carry: at least 16 characters. By default, a run that other machines
    can reach creates a token. `false` opens the run to everyone who can reach it."""
    loopback_requires_token: bool = False
    """Whether calls to loopback addresses also require the run token. Set it on a machine that other users share."""
    allowed_hosts: list[str] = []  # noqa: RUF012
    """Additional host names by which browsers and proxies may call the servers."""
    allow_policy_override: bool = False
    """Whether a row may set the endpoint, the API key and the model of its model calls."""


class ModelKeys:
    """Settings of the policy model."""

    policy_base_url: str | list[str]
    """The URL of the policy's endpoint, including `/v1`. The URLs of a list are used in turn. Also `--model-url`."""
    policy_api_key: str
    """The endpoint's API key. Keep it in `env.yaml`, because others can see command lines. Also `--model-api-key`."""
    policy_model_name: str
    """The model's name at the endpoint. Also `--model`."""
    policy_model: JsonObject
    """The model server that shipped configs refer to. The configs of policy model servers define it."""
    model_cache: str | None = None
    """The absolute path of a folder in which replies are stored and reused for equal requests. Do not set this key for
    training."""


class PairingKeys:
    """Settings that pair an environment with another agent or model."""

    agent_config: str | None = None
    """The config file of an agent that replaces the agents of the environments. Also `--agent-type NAME[/FLAVOR]`."""
    allow_unsupported_pairing: bool = False
    """Whether to run agents and models that an environment does not allow, with a warning. Also
    `--allow-unsupported-pairing`."""
    unsupported_pairings: list[str] = []  # noqa: RUF012 - never changed
    """The warnings about unsupported pairings. The run itself adds this key to its configuration."""


class ProcessKeys:
    """Settings for starting and running servers."""

    replicas: int | Literal["auto"] = 1
    """The number of processes of each server that does not set its own `num_workers`. `auto` is one per core."""
    process_start_method: Literal["fork", "spawn"] = "fork"
    """How servers start. Forking is faster; `spawn` is for folders whose imports do not survive a fork."""
    launcher: Literal["local", "ray"] = "local"
    """Where the servers start: on this machine, or on the nodes of a Ray cluster. Also `--launcher`."""
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
    sandbox: JsonObject
    """The provider of sandboxes and its options, such as `{docker: {…}}`, for servers that set `sandbox_provider`."""


class RolloutKeys:
    """Settings of rollouts and their records."""

    observability_enabled: bool = False
    """Whether to record every model call of each rollout in `model_call_capture_dir`."""
    model_call_capture_dir: str | None = None
    """The folder of the recorded calls. The path must be absolute, because each server runs in its own folder."""
    token_id_capture: JsonObject
    """Settings for recording the token ids of model calls for training. See the block `token_id_capture`."""
    skip_verification: bool = False
    """Whether agents skip grading and return `skip_verification_reward`. Each agent's block may override this key."""
    skip_verification_reward: float = 0.0
    """The reward of rollouts that are not graded."""


class ExportKeys:
    """Settings of experiment trackers and hubs."""

    wandb_project: str | None = None
    """The Weights & Biases project. A run is exported if all `wandb_` keys are set."""
    wandb_name: str | None = None
    """The name of the run in the Weights & Biases project."""
    wandb_api_key: str | None = None
    """The API key of the Weights & Biases account."""
    mlflow_tracking_uri: str | None = None
    """The MLflow server. A run is exported if all `mlflow_` keys are set."""
    mlflow_tracking_token: str | None = None
    """The token of the MLflow server."""
    mlflow_experiment_name: str | None = None
    """The MLflow experiment to which the run belongs."""
    mlflow_run_name: str | None = None
    """The name of the run in MLflow."""
    upload_rollouts: bool = True
    """Whether to export the rollouts in addition to the metrics."""
    upload_rollouts_to_wandb: bool = True
    """The older name of `upload_rollouts`."""
    hf_token: str | None = None
    """The Hugging Face token for datasets that are not public."""
    gitlab_url: str | None = None
    """The address of the GitLab project's API. Default: the API address in `mlflow_tracking_uri`."""
    gitlab_token: str | None = None
    """The token for the GitLab project. Default: `mlflow_tracking_token`."""


class IgnoredKeys:
    """Settings that are accepted but have no effect."""

    head_server_deps: object
    """Ignored, because the head server does not need packages of its own."""
    allow_openai_version_skew: object
    """Ignored, because server folders may use any version of `openai`."""
    python_version: object
    """Ignored, because separate virtual environments use the Python that runs the command."""
    pip_install_verbose: object
    """Ignored, because the output of an installer is always shown if it fails."""
    uv_pip_set_python: object
    """Ignored, because the installer always uses the interpreter of the virtual environment."""
    skip_venv_if_present: object
    """Ignored, because virtual environments are always reused as long as their packages are the same."""
    uvicorn_timeout_worker_healthcheck: object
    """Ignored, because the launcher monitors the workers."""
    global_aiohttp_tcp_keepalive_idle_seconds: object
    """Ignored, because connections within a run are local or are checked before use."""
    global_aiohttp_tcp_keepalive_interval_seconds: object
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    global_aiohttp_tcp_keepalive_probes: object
    """See `global_aiohttp_tcp_keepalive_idle_seconds`."""
    rollout_collection_driver: object
    """Ignored, because there is only one collector."""


KEY_TABLES: tuple[type, ...] = (
    SourceKeys, AddressKeys, ModelKeys, PairingKeys, ProcessKeys, RolloutKeys, ExportKeys, IgnoredKeys
)  # fmt: skip
"""All top-level keys that are not parameters of commands, in one table per subject."""
_COMMAND_KEYS = frozenset({
    "auto_install", "component_name", "delete_from_gitlab", "dry_run", "entrypoint", "hf_collection_name",
    "hf_collection_slug", "hf_dataset_prefix", "hf_organization", "json", "model_endpoint_readiness_timeout_seconds",
    "nemo_gym_log_dir", "query", "restart_limit", "verbose",
})  # fmt: skip
"""Parameters of some commands that any configuration may contain. Other commands ignore them."""
TOP_LEVEL_KEYS = _COMMAND_KEYS.union(*(table.__annotations__ for table in KEY_TABLES))
"""The top-level keys that any command accepts."""
RESERVED_KEYS = TOP_LEVEL_KEYS - {"policy_model", "sandbox"}
"""Top-level keys that cannot be the names of servers."""
