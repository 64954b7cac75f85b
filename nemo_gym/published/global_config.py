"""Configuration access for server folders written for the published package."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, field_validator

from nemo_gym.config.checks import check_some_server
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.view import HF_TOKEN_KEY_NAME, block_of_server, current_view, overrides_in, own_view, view_of
from nemo_gym.errors import PortTakenError

AGENT_REF_KEY_NAME = "agent_ref"
HEAD_SERVER_KEY_NAME = "head_server"
SKILLS_REF_KEY_NAME = "skills_ref"
TASK_SOURCE_KEY_NAME = "task_source"
TOKEN_ID_CAPTURE_BLOCK = "token_id_capture"

maybe_get_global_config_dict = current_view


class GlobalConfigDictParserConfig(BaseModel):
    """The sources from which a process reads its configuration."""

    model_config = ConfigDict(arbitrary_types_allowed=True, use_attribute_docstrings=True)

    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = OmegaConf.create(dict(NO_MODEL))
    """A value for `initial_global_config_dict` that makes the model settings optional."""

    dotenv_path: Path | None = None
    """The file to read instead of the first `env.yaml` in the search roots."""
    initial_global_config_dict: DictConfig | None = None
    """Values that override those of the config files. They may include `config_paths`, the list of these files."""
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False
    hide_secrets: bool = False
    """Whether to mask secrets in the result."""
    offline: bool = False
    """Has no effect, because reading a configuration never uses the network."""

    @field_validator("initial_global_config_dict", mode="before")
    @classmethod
    def _of_plain_data(cls, given: object) -> object:
        return OmegaConf.create(dict(given)) if isinstance(given, Mapping) else given

    def load(self, *, require_servers: bool = False, needs_variables: bool = True) -> RunConfig:
        """Read all sources. Raise a subclass of `ConfigError` with the place of the mistake and advice."""
        words = [] if self.skip_load_from_cli else overrides_in(sys.argv[1:])
        return load(
            (),
            words,
            initial=self.initial_global_config_dict,
            dotenv_path=self.dotenv_path,
            skip_dotenv=self.skip_load_from_dotenv,
            require_servers=require_servers,
            needs_variables=needs_variables,
        )


class GlobalConfigDictParser:
    """A parser for code that needs the configuration as one OmegaConf mapping."""

    def parse(self, global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """Return all sources merged, with applied directives, unresolved interpolations and a host for every server.

        Only configured ports are included, because the other ports are chosen when the servers start.
        """
        config = global_config_dict_parser_config or GlobalConfigDictParserConfig()
        return view_of(config.load(needs_variables=False), hide_secrets=config.hide_secrets)

    def parse_no_environment(self, initial_global_config_dict: Mapping[str, object] | None = None) -> DictConfig:
        """Parse only this mapping, and ignore the command line and `env.yaml`."""
        return self.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=initial_global_config_dict,
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )

    def filter_for_server_instance_configs(self, global_config_dict: DictConfig) -> list[ServerConfig]:
        """Return the servers in the order of the configuration."""
        return list(_run_of(global_config_dict).servers.values())

    def raise_on_no_server_instances(self, global_config_dict: DictConfig) -> None:
        """Raise `NoServerInstancesError` if the configuration does not define any server."""
        run = _run_of(global_config_dict)
        check_some_server(run.servers, run.config_paths)

    def detect_and_report_almost_servers(self, global_config_dict: DictConfig) -> None:
        """Raise `AlmostServerError` if blocks resemble servers but are invalid.

        If `error_on_almost_servers` is false, log warnings instead.
        """
        _run_of(global_config_dict)

    def collect_missing_value_paths(self, global_config_dict: DictConfig) -> list[str]:
        """Return the dotted key of every `???` value."""
        return sorted(OmegaConf.missing_keys(global_config_dict))


def _run_of(config: DictConfig) -> RunConfig:
    # Remove config_paths, because the values of the files are already in the configuration.
    plain: Any = OmegaConf.to_container(config)
    known = {key: value for key, value in plain.items() if key != "config_paths"}
    return load((), (), initial=known, skip_dotenv=True, needs_variables=False)


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """Return the read-only configuration of this process, as `own_view` does, with a parser for the first call."""
    return own_view(lambda: global_config_dict_parser_cls().parse(global_config_dict_parser_config))


def module_config(module: str) -> DictConfig:
    """Call `get_global_config_dict` as the module `module` has imported it, and return the result.

    Tests of server folders patch this function in the module that they import. Code that is called through that module
    must therefore use the patched function.
    """
    replaced: Callable[[], DictConfig] = getattr(
        sys.modules.get(module), "get_global_config_dict", get_global_config_dict
    )
    return replaced()


def get_hf_token() -> str | None:
    """Return the configured Hugging Face token, or None."""
    token: str | None = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return token


def get_first_server_config_dict(global_config_dict: Any, top_level_path: str) -> Any:
    """Return the settings of a server: the first value two levels below its name."""
    return block_of_server(global_config_dict, top_level_path)


def find_open_port(disallowed_ports: Collection[int] | None = None, max_retries: int = 50) -> int:
    """Return a port that is free now. Raise `PortTakenError` if every attempt found a disallowed port."""
    for _ in range(max_retries):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in (disallowed_ports or ()):
            return port
    raise PortTakenError(
        f"all {max_retries} free ports that were found are disallowed. Pass fewer ports as disallowed_ports."
    )
