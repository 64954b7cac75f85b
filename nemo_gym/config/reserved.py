"""Top-level keys with a fixed meaning, which are never server instances."""

RESERVED_KEYS = frozenset({
    # the sources of the configuration
    "config_paths", "_inherit_from", "_copy",
    # addresses and access
    "default_host", "use_absolute_ip", "head_server", "disallowed_ports", "port_range_low", "port_range_high",
    "run_token", "hf_token",
    # processes
    "dry_run", "process_start_method", "replicas", "restart_limit", "model_endpoint_readiness_timeout_seconds",
    "ray_head_node_address", "nemo_gym_log_dir", "results_dir", "cache_dir",
    # Python environments
    "auto_install", "head_server_deps", "allow_openai_version_skew", "python_version", "pip_install_verbose",
    "uv_pip_set_python", "uv_cache_dir", "uv_venv_dir", "skip_venv_if_present",
    # rollouts
    "observability_enabled", "model_call_capture_dir", "token_id_capture", "skip_verification",
    "skip_verification_reward",
    # parameters of commands
    "entrypoint", "verbose", "json", "query", "component_name",
})  # fmt: skip
