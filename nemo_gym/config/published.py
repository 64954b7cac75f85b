"""Small functions that server folders written for the published package ask the configuration with."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

from nemo_gym.errors import PortTakenError

CACHE_DIR_KEY_NAME = "cache_dir"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
HF_TOKEN_KEY_NAME = "hf_token"
RESULTS_DIR_KEY_NAME = "results_dir"


def get_first_server_config_dict(global_config_dict: Any, top_level_path: str) -> Any:
    """The settings of an instance: the first value two levels below its name."""
    tier = next(iter(global_config_dict[top_level_path].values()))
    return next(iter(tier.values()))


def find_open_port(disallowed_ports: Collection[int] | None = None, max_retries: int = 50) -> int:
    """A port that nothing listens on at this moment; `PortTakenError` where all tries met a disallowed one."""
    for _ in range(max_retries):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in (disallowed_ports or ()):
            return port
    raise PortTakenError(f"{max_retries} free ports were found, and all of them are disallowed")
