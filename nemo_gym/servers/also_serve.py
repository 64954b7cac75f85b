"""Protocols of other frameworks: `also_serve: [KIND]` loads `resources_servers/KIND/also_serve.py`.

The settings `mcp_servers` and `rows_may_add_servers` load `mcp_tools/joined.py`.
"""

import importlib
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from nemo_gym import paths
from nemo_gym.config.settings import BaseResourcesServerConfig
from nemo_gym.errors import ConfigError
from nemo_gym.servers.base import SimpleServer


def also_serve_if_asked(server: SimpleServer, app: FastAPI) -> None:
    """Call `add_to(app, server)` of each kind in the setting. Raise `ConfigError` for an unknown kind."""
    added, config = [f"{kind}/also_serve" for kind in getattr(server.config, "also_serve", ())], server.config
    # A folder's own setting of this name has a type of its own, and another meaning.
    field = type(config).model_fields.get("mcp_servers")
    if field and field.annotation == dict[str, Any] and isinstance(config, BaseResourcesServerConfig):
        added += ["mcp_tools/joined"] if config.mcp_servers or config.rows_may_add_servers else []
    for each in added:
        kind, _, module = each.partition("/")
        if paths.find(file := f"resources_servers/{each}.py", Path.is_file) is None:
            raise ConfigError(f"also_serve: '{kind}' is unknown, because {file} does not exist. Correct the name.")
        paths.augment_sys_path()
        importlib.import_module(f"resources_servers.{kind}.{module}").add_to(app, server)
