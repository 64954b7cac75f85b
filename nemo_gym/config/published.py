"""What server folders written for the published package ask the configuration of their process."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Collection
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.loading import load
from nemo_gym.errors import PortTakenError

CACHE_DIR_KEY_NAME = "cache_dir"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
HF_TOKEN_KEY_NAME = "hf_token"
RESULTS_DIR_KEY_NAME = "results_dir"
CONFIG_PATH_ENV_VAR = "NEMO_GYM_CONFIG_PATH"
"""Holds a server's name, in its own process."""

_OVERRIDE = re.compile(r"(\+\+|\+|~)?[A-Za-z_][\w.-]*=|~")
"""Begins a word of the command line that is meant for the configuration: a script may have words of its own."""

# Published folders ask for it from anywhere, so it cannot be handed to them. Ours never ask.
_of_process: list[DictConfig] = []


def tell_process(view: DictConfig) -> None:
    """Let this be what the process knows of the configuration."""
    _of_process[:] = [view]


def maybe_get_global_config_dict() -> DictConfig | None:
    """What this process knows of the configuration, read-only; None where it has not been told or asked yet."""
    return _of_process[0] if _of_process else None


def get_global_config_dict() -> DictConfig:
    """What this process knows of the configuration, read-only.

    A server knows its own block, the top-level values and where the others listen. Any other process reads `env.yaml`
    and its own command line (`+config_paths=[…]`, `+key=value`), once; then addresses are in it only where they are
    written there.
    """
    if not _of_process:
        words = [word for word in sys.argv[1:] if _OVERRIDE.match(word)]
        view = OmegaConf.create(dict(load((), words).raw))
        OmegaConf.set_readonly(view, True)
        tell_process(view)
    return _of_process[0]


def get_hf_token() -> str | None:
    """The token for Hugging Face that the configuration holds, if any."""
    token: str | None = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return token


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
