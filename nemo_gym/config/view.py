"""The configuration of this process as one OmegaConf mapping, for code that reads it without receiving it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.environment import CONFIG_DICT_ENV_VAR
from nemo_gym.config.loading import load
from nemo_gym.config.masking import masked
from nemo_gym.config.models import RunConfig
from nemo_gym.paths import working_dir

CACHE_DIR_KEY_NAME = "cache_dir"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
HF_TOKEN_KEY_NAME = "hf_token"
RESULTS_DIR_KEY_NAME = "results_dir"
CONFIG_PATH_ENV_VAR = "NEMO_GYM_CONFIG_PATH"
"""The environment variable that holds the server's name in each process of a server."""

_OVERRIDE = re.compile(r"(\+\+|\+|~)?[A-Za-z_][\w.-]*=|~")
"""Matches command-line arguments that change the configuration. Other arguments belong to the script."""

# The configuration is global, because the code of server folders reads it without receiving it as an argument.
_of_process: list[DictConfig] = []


def set_view(view: DictConfig) -> None:
    """Make this the configuration of this process."""
    _of_process[:] = [view]


@contextmanager
def viewing(view: DictConfig) -> Iterator[None]:
    """Set the configuration of this process, and restore the earlier one when the `with` block ends."""
    earlier = list(_of_process)
    set_view(view)
    try:
        yield
    finally:
        _of_process[:] = earlier


def current_view() -> DictConfig | None:
    """Return this process's read-only configuration, or None if it was neither set nor loaded yet."""
    return _of_process[0] if _of_process else None


def own_view(load_it: Callable[[], DictConfig] | None = None) -> DictConfig:
    """Return the read-only configuration of this process. Load it if there is none yet.

    In a server, it contains the server's own block, the top-level values and the addresses of other servers. In a
    process that started servers, it is the whole configuration. Any other process loads its sources once: by default
    `env.yaml` and its own command line (`+config_paths=[…]`, `+key=value`).
    """
    if not _of_process:
        yaml_text = os.environ.get(CONFIG_DICT_ENV_VAR)
        config = OmegaConf.create(yaml_text) if yaml_text else None
        if not isinstance(config, DictConfig):
            config = load_it() if load_it else view_of(load((), overrides_in(sys.argv[1:]), needs_variables=False))
        set_view(config)
    return _of_process[0]


def overrides_in(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command line that change the configuration."""
    return [word for word in words if _OVERRIDE.match(word)]


def view_of(run: RunConfig, *, hide_secrets: bool = False) -> DictConfig:
    """Return a run's configuration as one read-only mapping. Each server has a host, and a port if it is known."""
    head = {"host": run.head.host, "port": run.head.port}
    raw: dict[str, Any] = {**run.raw, **with_defaults(run.plain), "head_server": head}
    for server in run.servers.values():
        address = {"host": server.host, **({"port": server.port} if server.port else {})}
        raw[server.name] = {server.type: {server.implementation: {
            **raw[server.name][server.type][server.implementation], **address,
        }}}  # fmt: skip
    view = OmegaConf.create(masked(raw) if hide_secrets else raw)
    OmegaConf.set_readonly(view, True)
    return view


def with_defaults(plain: Mapping[str, Any]) -> dict[str, object]:
    """Return the values, or else the defaults, of the top-level keys that server folders read."""
    root = working_dir()
    return {
        RESULTS_DIR_KEY_NAME: str(Path(plain.get(RESULTS_DIR_KEY_NAME) or root / "results").expanduser().absolute()),
        CACHE_DIR_KEY_NAME: str(Path(plain.get(CACHE_DIR_KEY_NAME) or root / "cache").expanduser().absolute()),
        DISALLOWED_PORTS_KEY_NAME: list(plain.get(DISALLOWED_PORTS_KEY_NAME) or ()),
    }


def block_of_server(config: Mapping[str, Any], name: str) -> Any:
    """Return the settings of a server: the first value two levels below its name."""
    tier = next(iter(config[name].values()))
    return next(iter(tier.values()))
