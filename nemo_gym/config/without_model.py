"""Read a configuration for tasks that need no model, such as data preparation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nemo_gym.config.checks import check_references, check_some_server, references_of, with_called
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.overrides import Override
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.settings import AGENT_TIER, DUMMY_MODEL, MODEL_TIER, POLICY_MODEL, SAMPLE_MODEL
from nemo_gym.config.sources import STAND_IN
from nemo_gym.config.tree import UNSET
from nemo_gym.paths import INSTALL_ROOT


def load_without_model(paths: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a configuration without requiring model settings. A policy model that is not defined is left out.

    Raise `NoServerInstancesError` if no server is configured.
    """
    run = load(paths, overrides, initial=NO_MODEL, needs_variables=False)
    return run.with_servers(_without_dummy(run))


def load_with_stand_in(paths: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a configuration. If servers refer to a policy model that is not defined, add `sample_model` in its place.

    Raise `NoServerInstancesError` if no server is configured.
    """
    run = load(paths, overrides, stand_in=NO_MODEL, needs_variables=False)
    servers = _without_dummy(run)
    wanted = {name for server in servers.values() for name in references_of(server)}
    stand_ins = {name: server for name, server in run.servers.items() if name in wanted and name not in servers}
    return _sampled(run.with_servers({**servers, **stand_ins}), stand_ins)


def load_as_written(paths: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a configuration for a command that does not start servers. Leave out a policy model that is not defined."""
    run = load(paths, overrides, stand_in=NO_MODEL, needs_variables=False)
    return run.model_copy(
        update={
            "servers": {name: server for name, server in run.servers.items() if server.origins[""] != STAND_IN},
            "raw": {key: value for key, value in run.raw.items() if value != NO_MODEL.get(key, UNSET)},
        }
    )


def stand_ins_of(run: RunConfig) -> list[str]:
    """Return the names of the servers that `load_with_stand_in` added."""
    return [name for name, server in run.servers.items() if server.origins[""] == STAND_IN]


def load_for_metrics(paths: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a configuration with `sample_model` in place of every model, because metrics need no model.

    A configuration without servers is accepted as well.
    """
    run = load(paths, overrides, initial=NO_MODEL, needs_variables=False)
    if all(server.implementation == DUMMY_MODEL for server in run.servers.values()):
        return run.with_servers({})
    return _sampled(run, [server.name for server in run.servers_of(MODEL_TIER)])


def only_for(run: RunConfig, names: Iterable[str]) -> RunConfig:
    """Return the run with only these servers and those that they refer to, directly or indirectly, on free ports.

    Raise `ServerRefNotFoundError` for an unknown name.
    """
    kept = with_called([run.server(name) for name in names], run)
    # Use free ports, because servers that already run may use the configured ports.
    free = {"port": 0, "port_is_fixed": False}
    return run.with_servers({name: server.model_copy(update=free) for name, server in kept.items()})


def load_for_grading(paths: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a configuration without requiring a policy model. `graders_of` checks that judges have their own model."""
    return load(paths, overrides, initial={POLICY_MODEL: NO_MODEL[POLICY_MODEL]}, needs_variables=False)


def graders_of(run: RunConfig) -> RunConfig:
    """Return the run without its agents and without the placeholder of the policy model.

    Raise a `ConfigError` if no server is left, or if a grader refers to a server that was removed.
    """
    servers = {
        name: server
        for name, server in run.servers.items()
        if server.type != AGENT_TIER and server.implementation != DUMMY_MODEL
    }
    check_some_server(servers, run.config_paths)
    check_references(servers, {})
    return run.with_servers(servers)


def _without_dummy(run: RunConfig) -> dict[str, ServerConfig]:
    servers = {name: server for name, server in run.servers.items() if server.implementation != DUMMY_MODEL}
    check_some_server(servers, run.config_paths)
    return servers


def _sampled(run: RunConfig, names: Iterable[str]) -> RunConfig:
    """Return the run with `sample_model`, which needs no endpoint, in place of the models with these names."""
    own = {
        "implementation": SAMPLE_MODEL, "entrypoint": "app.py", "folder": INSTALL_ROOT / MODEL_TIER / SAMPLE_MODEL,
        "settings": {}, "isolated": False, "num_workers": 1, "unset_variables": (),
    }  # fmt: skip
    models = {name: run.servers[name].model_copy(update=own) for name in names}
    raw = {name: {MODEL_TIER: {SAMPLE_MODEL: {"entrypoint": "app.py"}}} for name in models}
    return run.model_copy(update={"servers": {**run.servers, **models}, "raw": {**run.raw, **raw}})
