"""Top-level keys with a fixed meaning, which are never server instances."""

RESERVED_KEYS = frozenset({
    # the sources of the configuration
    "config_paths", "_inherit_from", "_copy",
    # addresses and access
    "default_host", "use_absolute_ip", "head_server", "disallowed_ports", "port_range_low", "port_range_high",
    "run_token", "loopback_requires_token", "allowed_hosts", "allow_policy_override", "hf_token",
    # processes
    "dry_run", "process_start_method", "replicas", "restart_limit", "model_endpoint_readiness_timeout_seconds",
    "ray_head_node_address", "nemo_gym_log_dir", "results_dir", "cache_dir",
    # Python environments
    "auto_install", "head_server_deps", "allow_openai_version_skew", "python_version", "pip_install_verbose",
    "uv_pip_set_python", "uv_cache_dir", "uv_venv_dir", "skip_venv_if_present",
    # rollouts
    "observability_enabled", "model_call_capture_dir", "token_id_capture", "skip_verification",
    "skip_verification_reward", "model_cache",
    # parameters of commands
    "entrypoint", "verbose", "json", "query", "component_name",
})  # fmt: skip

SHARED_KEYS = frozenset({
    # the model
    "policy_base_url", "policy_api_key", "policy_model_name", "policy_model",
    # checks and servers
    "error_on_almost_servers", "uvicorn_timeout_worker_healthcheck", "uvicorn_logging_show_200_ok",
    "profiling_enabled", "profiling_results_dirpath", "sandbox",
    # connections
    "global_aiohttp_connector_limit", "global_aiohttp_connector_limit_per_host",
    "global_aiohttp_client_request_debug", "global_aiohttp_tcp_keepalive_idle_seconds",
    "global_aiohttp_tcp_keepalive_interval_seconds", "global_aiohttp_tcp_keepalive_probes",
    # experiment trackers and hubs
    "wandb_project", "wandb_name", "wandb_api_key", "mlflow_tracking_uri", "mlflow_tracking_token",
    "mlflow_experiment_name", "mlflow_run_name", "upload_rollouts", "upload_rollouts_to_wandb",
    "rollout_collection_driver", "hf_organization", "hf_collection_name", "hf_collection_slug", "hf_dataset_prefix",
    "gitlab_url", "gitlab_token", "delete_from_gitlab",
})  # fmt: skip
"""Further top-level keys that commands, servers or shipped configs read."""
