"""Serve one folder alone, for `python app.py`, without the launcher and the other servers."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from nemo_gym.config.access import needs_token
from nemo_gym.config.certificates import check_can_serve
from nemo_gym.config.environment import CONFIG_DICT_ENV_VAR
from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.ports import bind
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.reading import read_yaml
from nemo_gym.config.sandbox_networks import networked_sandbox
from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.config.tree import Node
from nemo_gym.config.view import CONFIG_PATH_ENV_VAR
from nemo_gym.errors import ConfigError, UserError
from nemo_gym.paths import roots_from_here
from nemo_gym.process.serve import Report, imports_entrypoint, serve
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER
from nemo_gym.servers.base import SimpleServer
from nemo_gym.text import log_to_terminal, visible

logger = logging.getLogger(__name__)


def serve_alone(cls: type[SimpleServer]) -> None:
    """Serve the folder of the class.

    Its configuration comes from the environment variable `NEMO_GYM_CONFIG_DICT`, or from `+config_paths=[…]`, or else
    from a file in the folder's own `configs`.

    This function does not return: the process ends with the server. If the server cannot start, the process prints a
    message and exits with status 1. The exception is a call in a module that nemo_gym itself imports, because the
    call is not below `if __name__ == "__main__"`. It does nothing, because nemo_gym then uses the class itself.
    """
    if imports_entrypoint.get():
        return
    log_to_terminal()
    try:
        code = _serve(Path(inspect.getfile(cls)).resolve().parent)
    except UserError as error:
        print(visible(f"Error: {error}"), file=sys.stderr)  # noqa: T201 - this is a command of its own
        code = 1
    sys.exit(code)


def _serve(folder: Path) -> int:
    words = sys.argv[1:]
    # Use the project that contains the folder, even if the program is started inside the folder.
    os.environ.update(roots_from_here(ServerFolder.of(folder).root))
    handed = os.environ.get(CONFIG_DICT_ENV_VAR)
    if handed:
        run = load((), words, initial=_read(handed), skip_dotenv=True)
    elif any("config_paths=" in word for word in words):
        run = load((), words)
    else:
        own = _config_with_block_for(folder)
        # Leave out the config's agent, which refers to servers that are not started here.
        blocks = {name: block for name, block in read_yaml(own).mapping.items() if isinstance(block.value, dict)}
        run = load([own], [*(f"~{name}" for name in blocks if not _is_block_for(blocks[name], folder)), *words])
    check_can_serve(run)
    server = _server_of(run, folder)
    listener = bind(
        server.host,
        server.port,
        instance=server.name,
        port_range=run.settings.port_range,
        written=run.written_address(server),
    )
    port = listener.getsockname()[1]
    bound = server.model_copy(update={"port": port})
    logger.info("%s listens on %s", server.name, bound.url)
    settings = ProcessSettings.of(_with_token(run, server), bound, cookie_secret=secrets.token_hex(32))
    return serve(settings, [listener], Report(None))


def _read(handed: str) -> Mapping[str, object]:
    try:
        plain = yaml.safe_load(handed)
    except yaml.YAMLError as error:
        raise ConfigError(f"{CONFIG_DICT_ENV_VAR}: invalid YAML: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f"{CONFIG_DICT_ENV_VAR}: its value is not a mapping. Set it to a complete configuration.")
    # Drop `config_paths`, because the configuration already contains the content of these files.
    return {key: value for key, value in plain.items() if key != "config_paths"}


def _with_token(run: RunConfig, server: ServerConfig) -> RunConfig:
    token = run.settings.run_token or None
    if token is None and needs_token(run, [server.host]):
        setting = networked_sandbox(run.plain)
        raise ConfigError(
            f"{server.name}: {_callers(server.host, setting)}, but no run token protects it. "
            f"Set run_token in env.yaml, or {_way_to_open(server.host, setting)}. "
            f"Callers send the token as the header {RUN_TOKEN_HEADER}."
        )
    return run.model_copy(update={"run_token": token})


def _callers(host: str, setting: str | None) -> str:
    if is_loopback(host):
        if setting:
            return f"programs in sandboxes can call its host {host} ({setting})"
        return f"loopback_requires_token closes its host {host} to other users"
    return f"other machines can reach its host {host}"


def _way_to_open(host: str, setting: str | None) -> str:
    if is_loopback(host):
        return f"remove {setting or 'loopback_requires_token'}"
    return "set run_token: false to open it to everyone, or use host 127.0.0.1"


def _config_with_block_for(folder: Path) -> Path:
    for path in sorted((folder / "configs").glob("*.yaml")):
        if any(_is_block_for(block, folder) for block in read_yaml(path).mapping.values()):
            return path
    raise ConfigError(
        f"{folder / 'configs'}: no YAML file here has a block for {ServerFolder.of(folder).name}. "
        "Start the server with ng_run --config path/to/config.yaml."
    )


def _is_block_for(block: Node, folder: Path) -> bool:
    place = ServerFolder.of(folder)
    held = block.mapping.get(place.tier)
    return held is not None and place.implementation in held.mapping


def _server_of(run: RunConfig, folder: Path) -> ServerConfig:
    found = [server for server in run.servers.values() if server.folder.resolve() == folder]
    wanted = os.environ.get(CONFIG_PATH_ENV_VAR)
    chosen = [server for server in found if wanted in (None, server.name)]
    if len(chosen) == 1:
        return chosen[0]
    raise ConfigError(
        f"{folder}: {len(chosen)} servers of the configuration use this folder"
        f"{f' and are called {wanted}' if wanted else ''}. "
        f"Set {CONFIG_PATH_ENV_VAR} to the name of the server to start."
    )
