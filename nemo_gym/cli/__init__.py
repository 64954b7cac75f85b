"""The command line: parse, call, print.

Frameworks import a few names from here; each is fetched from its home when it is first asked for, so that a command
starts without the others.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "GlobalConfigDictParserConfig": "nemo_gym.config.published:GlobalConfigDictParserConfig",
    "RunHelper": "nemo_gym.cli.helper:RunHelper",
    "RunConfig": "nemo_gym.cli.settings:EntrypointSettings",
    "TestConfig": "nemo_gym.cli.settings:TestSettings",
    "dump_config": "nemo_gym.cli.published:dump_config",
    "e2e_rollout_collection": "nemo_gym.cli.published:e2e_rollout_collection",
    "init_resources_server": "nemo_gym.cli.published:init_resources_server",
    "run": "nemo_gym.cli.published:run",
    "status": "nemo_gym.cli.published:status",
    "test": "nemo_gym.cli.published:test",
    "version": "nemo_gym.cli.published:version",
}

__all__ = [
    "GlobalConfigDictParserConfig",
    "RunConfig",
    "RunHelper",
    "TestConfig",
    "dump_config",
    "e2e_rollout_collection",
    "init_resources_server",
    "run",
    "status",
    "test",
    "version",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nemo_gym.cli' has no attribute '{name}'")
    module, attribute = _HOMES[name].split(":")
    found = getattr(importlib.import_module(module), attribute)
    globals()[name] = found
    return found
