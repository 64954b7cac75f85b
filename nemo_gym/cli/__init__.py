"""The command line, which parses arguments, calls the library and prints results.

Training frameworks import a few names from here. Each name is loaded on first use, so that commands start fast.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "GlobalConfigDictParserConfig": "nemo_gym.published.global_config:GlobalConfigDictParserConfig",
    "RunHelper": "nemo_gym.published.run_helper:RunHelper",
    "PipListConfig": "nemo_gym.cli.settings:PackagesSettings",
    "RunConfig": "nemo_gym.cli.settings:EntrypointSettings",
    "TestAllConfig": "nemo_gym.cli.settings:TestAllSettings",
    "TestConfig": "nemo_gym.cli.settings:TestSettings",
    "VersionConfig": "nemo_gym.published.settings_classes:VersionConfig",
    "dev_test": "nemo_gym.published.commands:dev_test",
    "dump_config": "nemo_gym.published.commands:dump_config",
    "e2e_rollout_collection": "nemo_gym.published.commands:e2e_rollout_collection",
    "init_resources_server": "nemo_gym.published.commands:init_resources_server",
    "pip_list": "nemo_gym.published.commands:pip_list",
    "run": "nemo_gym.published.commands:run",
    "status": "nemo_gym.published.commands:status",
    "test": "nemo_gym.published.commands:test",
    "test_all": "nemo_gym.published.commands:test_all",
    "version": "nemo_gym.published.commands:version",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nemo_gym.cli' has no attribute '{name}'")
    module, attribute = _HOMES[name].split(":")
    found = globals()[name] = getattr(importlib.import_module(module), attribute)
    return found
