"""A run as read from its whole configuration, for code that only has an OmegaConf mapping."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import Head, ServerClient
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.look_up import looked_up
from nemo_gym.config.access import configured_token
from nemo_gym.config.models import HeadConfig, RunConfig, ServerConfig
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SERVER_TYPES, http_url
from nemo_gym.config.tls import Tls, scheme_of
from nemo_gym.config.token_capture import TokenCaptureConfig


def run_of_config(config: object) -> RunConfig:
    """Return the run of a whole configuration, which was not checked.

    Blocks that cannot be resolved are skipped. If `config` is not a mapping, the run is empty.
    """
    if not isinstance(config, Mapping):
        return RunConfig(servers={})
    instances = {str(key): _instance_of(config, str(key)) for key in config}
    servers = {name: _server_in(config, name) for name in dict.fromkeys(instances.values())}
    found = {name: server for name, server in servers.items() if server is not None}
    member = str(config.get("_ng_member") or "")
    head = block_in(config, "head_server")
    return RunConfig(
        servers=found,
        head=HeadConfig(host=str(head["host"]), port=int(head["port"])) if member and head else HeadConfig(),
        aliases={name: own for name, own in instances.items() if name != own and own in found},
        settings=_settings_in(config),
        run_token=configured_token({"run_token": config.get("run_token")}) if member else None,
        run_id=str(config.get("_ng_run_id") or "") if member else "",
        tls=Tls.of(config),
        member=member,
    )


def block_in(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key, or an empty one if the value is unresolved or not a mapping."""
    if OmegaConf.is_config(config) and (OmegaConf.is_interpolation(config, key) or OmegaConf.is_missing(config, key)):
        return {}
    block = config.get(key)
    return block if isinstance(block, Mapping) else {}


def setup_server_client(head_server_config: Head | None = None) -> ServerClient:
    """Return a client for the run with this head server. Default: the head server in this process's configuration."""
    return ServerClient.load_from_global_config(head_server_config)


def get_server_url(server_name: str) -> str:
    """Return a server's URL from the configuration of this process."""
    book = AddressBook.of_run(run_of_config(hooks().config()))
    host, port = book.address_of(server_name) if book.head is None else looked_up(book, server_name)
    # Use a name that the certificate contains, because other programs verify the host of the URL.
    return http_url(book.tls.name_at(host), port, scheme_of(book.tls)) if book.tls else http_url(host, port)


def _settings_in(config: Mapping[str, Any]) -> RunSettings:
    """Return the settings in a configuration that was not checked. Leave out invalid ones."""
    values: dict[str, object] = {}
    for name in RunSettings.model_fields:
        with suppress(OmegaConfBaseException):
            given = config.get(name)
            values[name] = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors()}
    valid = RunSettings.model_validate({name: value for name, value in values.items() if name not in wrong})
    # Tests of server folders enable the recording of calls and tokens without a folder.
    enabled: dict[str, object] = {"observability_enabled": values.get("observability_enabled") is True}
    tokens = values.get("token_id_capture")
    if isinstance(tokens, dict) and tokens.get("enabled") is True:
        enabled["token_id_capture"] = TokenCaptureConfig.model_construct(**tokens)
    return valid.model_copy(update=enabled)


def _instance_of(config: Mapping[str, Any], name: str) -> str:
    """Resolve the name of an `environment_servers` block to its agent instance; return other names unchanged."""
    # Limit the number of steps to the longest possible chain, because names may form a cycle.
    for _ in range(len(config)):
        named = block_in(block_in(config, name), ENVIRONMENT_SERVERS)
        agent = block_in(block_in(named, next(iter(named))), "agent_server") if named else {}
        try:
            name = str(agent["name"])
        except (KeyError, OmegaConfBaseException):
            break
    return name


def _server_in(config: Mapping[str, Any], name: str) -> ServerConfig | None:
    block = block_in(config, name)
    tier = next((tier for tier in SERVER_TYPES if tier in block), None)
    if tier is None:
        return None
    implementations = block_in(block, tier)
    implementation = next(iter(implementations), "")
    given = block_in(implementations, implementation)
    if not any(key in given for key in ("host", "port", "entrypoint")):
        # Skip a block that only overrides settings of a server that the run does not include.
        return None
    try:
        host, port = str(given["host"]), int(given["port"])
    except (KeyError, TypeError, ValueError, OmegaConfBaseException):
        host, port = "", 0
    return ServerConfig(
        name=name,
        type=tier,
        implementation=str(implementation),
        entrypoint="",
        folder=Path(),
        host=host,
        port=port,
        settings={str(key): _plain(given, key) for key in given},
    )


def _plain(settings: Mapping[str, Any], key: str) -> Any:
    """Return a setting with its interpolations resolved, or unresolved if they cannot be resolved here.

    An interpolation may refer to a masked value, or to an environment variable of another machine.
    """
    try:
        value = settings[key]
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return OmegaConf.to_container(settings, resolve=False)[key]  # type: ignore[call-overload, index]
