"""Read a configuration for tasks that need no model, such as data preparation."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_gym.config.checks import check_references, check_some_server
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.config.servers import DUMMY_MODEL, NO_MODEL
from nemo_gym.config.settings import AGENT_TIER


def load_without_model(paths: Sequence[str], overrides: Sequence[str]) -> RunConfig:
    """Load without any model settings. Raise `NoServerInstancesError` if no server is configured."""
    run = load(paths, overrides, initial=NO_MODEL)
    servers = {name: server for name, server in run.servers.items() if server.implementation != DUMMY_MODEL}
    check_some_server(servers, run.config_paths)
    return run.model_copy(update={"servers": servers})


def load_for_grading(paths: Sequence[str], overrides: Sequence[str]) -> RunConfig:
    """Load without a policy model. A judge still needs its own model (see `graders_of`)."""
    return load(paths, overrides, initial={"policy_model": NO_MODEL["policy_model"]})


def graders_of(run: RunConfig) -> RunConfig:
    """Return the run without its agents and the dummy model, so only graders and their models remain."""
    servers = {
        name: server
        for name, server in run.servers.items()
        if server.type != AGENT_TIER and server.implementation != DUMMY_MODEL
    }
    check_some_server(servers, run.config_paths)
    check_references(servers, {})
    return run.model_copy(update={"servers": servers, "aliases": {}})
