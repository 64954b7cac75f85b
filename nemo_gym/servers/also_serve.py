"""Protocols of other frameworks: `also_serve: [KIND]` loads `resources_servers/KIND/also_serve.py`."""

import importlib
from pathlib import Path

from fastapi import FastAPI

from nemo_gym import paths
from nemo_gym.errors import ConfigError
from nemo_gym.servers.base import SimpleServer


def also_serve_if_asked(server: SimpleServer, app: FastAPI) -> None:
    """Call `add_to(app, server)` of each kind in the setting. Raise `ConfigError` for an unknown kind."""
    for kind in getattr(server.config, "also_serve", ()):
        if paths.find(file := f"resources_servers/{kind}/also_serve.py", Path.is_file) is None:
            raise ConfigError(f"also_serve: '{kind}' is unknown, because {file} does not exist. Correct the name.")
        paths.augment_sys_path()
        importlib.import_module(f"resources_servers.{kind}.also_serve").add_to(app, server)
