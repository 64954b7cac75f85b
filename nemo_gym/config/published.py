"""What server folders written for the published package ask the configuration of their process."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, field_validator

from nemo_gym.config.checks import check_some_server
from nemo_gym.config.environment import CONFIG_DICT_ENV_VAR
from nemo_gym.config.loading import load
from nemo_gym.config.masking import masked
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.errors import PortTakenError
from nemo_gym.paths import working_dir

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


class GlobalConfigDictParserConfig(BaseModel):
    """From which sources a process reads its configuration."""

    model_config = ConfigDict(arbitrary_types_allowed=True, use_attribute_docstrings=True)

    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = OmegaConf.create(dict(NO_MODEL))
    """As `initial_global_config_dict`: a configuration whose model need not be known."""

    dotenv_path: Path | None = None
    """Another file than the first `env.yaml` of the search roots."""
    initial_global_config_dict: DictConfig | None = None
    """Laid over the files; may name them with `config_paths`."""
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False
    hide_secrets: bool = False
    """Mask secrets in what is given back."""
    offline: bool = False
    """Accepted; reading a configuration never asks the network."""

    @field_validator("initial_global_config_dict", mode="before")
    @classmethod
    def _of_plain_data(cls, given: Any) -> Any:
        return OmegaConf.create(dict(given)) if isinstance(given, Mapping) else given

    def load(self, *, require_servers: bool = False) -> RunConfig:
        """Read them all. Raises a subclass of `ConfigError` that names the place and what to do."""
        words = [] if self.skip_load_from_cli else [word for word in sys.argv[1:] if _OVERRIDE.match(word)]
        return load(
            (),
            words,
            initial=self.initial_global_config_dict,
            dotenv_path=self.dotenv_path,
            skip_dotenv=self.skip_load_from_dotenv,
            require_servers=require_servers,
        )


class GlobalConfigDictParser:
    """Reads a configuration for code that asks for it as one OmegaConf mapping."""

    def parse(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """All sources merged, directives followed, interpolations unresolved; every server has a host.

        Ports are in it only where they are written: servers get theirs when they start.
        """
        config = global_config_dict_parser_config or GlobalConfigDictParserConfig()
        return view_of(config.load(), hide_secrets=config.hide_secrets)

    def parse_no_environment(self, initial_global_config_dict: Any = None) -> DictConfig:
        """The same from this mapping alone."""
        return self.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=initial_global_config_dict,
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )

    def filter_for_server_instance_configs(self, global_config_dict: DictConfig) -> list[ServerConfig]:
        """The servers that a configuration defines, in its order."""
        return list(_run_of(global_config_dict).servers.values())

    def raise_on_no_server_instances(self, global_config_dict: DictConfig) -> None:
        """Raise `NoServerInstancesError` where a configuration defines no server."""
        run = _run_of(global_config_dict)
        check_some_server(run.servers, run.config_paths)

    def detect_and_report_almost_servers(self, global_config_dict: DictConfig) -> None:
        """Raise `AlmostServerError` for blocks that look like servers and cannot be.

        They are only logged where `error_on_almost_servers` is false.
        """
        _run_of(global_config_dict)

    def collect_missing_value_paths(self, global_config_dict: DictConfig) -> list[str]:
        """The dotted key of every value that is still `???`."""
        return sorted(OmegaConf.missing_keys(global_config_dict))


def _run_of(config: DictConfig) -> RunConfig:
    # Laid over the files that it was read from, it would only be merged with itself.
    plain: Any = OmegaConf.to_container(config)
    known = {key: value for key, value in plain.items() if key != "config_paths"}
    return load((), (), initial=known, skip_dotenv=True)


def published_defaults(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level values that published folders read without anybody having set them."""
    root = working_dir()
    return {
        RESULTS_DIR_KEY_NAME: str(Path(plain.get(RESULTS_DIR_KEY_NAME) or root / "results").absolute()),
        CACHE_DIR_KEY_NAME: str(Path(plain.get(CACHE_DIR_KEY_NAME) or root / "cache").absolute()),
        DISALLOWED_PORTS_KEY_NAME: list(plain.get(DISALLOWED_PORTS_KEY_NAME) or ()),
    }


def view_of(run: RunConfig, *, hide_secrets: bool = False) -> DictConfig:
    """A run's configuration as one read-only mapping, each server with its address as far as it is known."""
    head = {"host": run.head.host, "port": run.head.port}
    raw: dict[str, Any] = {**run.raw, **published_defaults(run.plain), "head_server": head}
    for server in run.servers.values():
        address = {"host": server.host, **({"port": server.port} if server.port else {})}
        raw[server.name] = {server.type: {server.implementation: {
            **raw[server.name][server.type][server.implementation], **address,
        }}}  # fmt: skip
    view = OmegaConf.create(masked(raw) if hide_secrets else raw)
    OmegaConf.set_readonly(view, True)
    return view


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """What this process knows of the configuration, read-only.

    A server knows its own block, the top-level values and where the others listen; a process that has started servers
    knows what they know. Any other process reads its sources, once: by default `env.yaml` and its own command line
    (`+config_paths=[…]`, `+key=value`).
    """
    if not _of_process:
        handed = os.environ.get(CONFIG_DICT_ENV_VAR)
        told = OmegaConf.create(handed) if handed else None
        if not isinstance(told, DictConfig):
            told = global_config_dict_parser_cls().parse(global_config_dict_parser_config)
        tell_process(told)
    return _of_process[0]


def told_by(module: str) -> DictConfig:
    """What `get_global_config_dict` answers as this module names it.

    Tests of published folders replace it in the module that they import; whoever is reached through that module
    therefore asks there.
    """
    replaced: Callable[[], DictConfig] = getattr(
        sys.modules.get(module), "get_global_config_dict", get_global_config_dict
    )
    return replaced()


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
