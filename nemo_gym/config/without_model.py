"""Read a configuration for work on its data or its folders, which needs no model."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_gym.config.checks import check_some_server
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.config.servers import DUMMY_MODEL, NO_MODEL


def load_without_model(paths: Sequence[str], overrides: Sequence[str]) -> RunConfig:
    """As `load`, and nothing about the model need be set; `NoServerInstancesError` where no server is configured."""
    run = load(paths, overrides, initial=NO_MODEL)
    servers = {name: server for name, server in run.servers.items() if server.implementation != DUMMY_MODEL}
    check_some_server(servers, run.config_paths)
    return run.model_copy(update={"servers": servers})
