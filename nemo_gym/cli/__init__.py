"""The command line, which parses arguments, calls the library and prints results.

Training frameworks import a few names from here. Each name is loaded on first use, so that commands start fast.
"""

from __future__ import annotations

import importlib
from typing import Any

_SETTINGS = "nemo_gym.cli.settings"
_HOMES = {
    "GlobalConfigDictParserConfig": ("nemo_gym.published.global_config", "GlobalConfigDictParserConfig"),
    "RunHelper": ("nemo_gym.published.run_helper", "RunHelper"),
    "PipListConfig": (_SETTINGS, "PackagesSettings"),
    "RunConfig": (_SETTINGS, "EntrypointSettings"),
    "TestAllConfig": (_SETTINGS, "TestAllSettings"),
    "TestConfig": (_SETTINGS, "TestSettings"),
    "VersionConfig": ("nemo_gym.published.settings_classes", "VersionConfig"),
}
_COMMANDS = (
    "dev_test", "dump_config", "e2e_rollout_collection", "init_resources_server", "pip_list", "run", "status", "test",
    "test_all", "version",
)  # fmt: skip
_PLACES = _HOMES | {name: ("nemo_gym.published.commands", name) for name in _COMMANDS}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'nemo_gym.cli' has no attribute '{name}'")
    module, attribute = _PLACES[name]
    found = globals()[name] = getattr(importlib.import_module(module), attribute)
    return found
