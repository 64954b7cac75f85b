"""Access control for a run's servers: who must send the run token."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping

from nemo_gym.config.explain import place_of
from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.models import Origin, RunConfig
from nemo_gym.config.run_settings import RunSettings, checked_token
from nemo_gym.config.sandbox_networks import networked_sandbox
from nemo_gym.errors import ConfigError

RUN_TOKEN_ENV_VAR = "NEMO_GYM_RUN_TOKEN"
"""The environment variable with the run token, for callers on other machines and for runs on several machines."""
PROTECTING_KEYS = ("run_token", "loopback_requires_token")
"""Keys that restrict access. If one cannot be resolved, the run is not started, because it might be open."""


def configured_token(plain: Mapping[str, object]) -> str | None:
    """Return the configured token, or None. Raise `ConfigError` if it is too short or cannot be sent in a header."""
    try:
        return checked_token(plain.get("run_token")) or None
    except ValueError as error:
        raise ConfigError(f"run_token: {error}.") from error


def reachable_hosts(run: RunConfig) -> list[str]:
    """Return the run's host addresses that other machines can reach, the head server's first."""
    hosts = dict.fromkeys([run.head.host, *(server.host for server in run.servers_here.values())])
    return [host for host in hosts if not is_loopback(host)]


def needs_token(run: RunConfig, hosts: Iterable[str]) -> bool:
    """Return whether calls to these hosts of a run must carry a token.

    The token is required if other machines can reach one of the hosts, if `loopback_requires_token` is set, or if
    programs in sandboxes can reach loopback addresses. With `run_token: false`, it is never required.
    """
    closes_loopback = run.settings.loopback_requires_token or networked_sandbox(run.plain) is not None
    return not run.settings.is_open and (closes_loopback or not all(map(is_loopback, hosts)))


def check_access(settings: RunSettings, plain: Mapping[str, object], places: Mapping[str, Origin]) -> None:
    """Raise ConfigError if a setting opens the run, although programs in sandboxes can reach loopback addresses."""
    for key in PROTECTING_KEYS:
        is_off = key in settings.model_fields_set and getattr(settings, key) is False
        if is_off and (setting := networked_sandbox(plain)):
            raise ConfigError(
                f"{place_of((key,), places)}: {key}: false would let programs in sandboxes call the servers of this "
                f"run, because of {setting}. Remove {key}, or give the sandboxes no network of this machine."
            )


def token_of_run(run: RunConfig) -> str | None:
    """Return the token that calls to a run's servers must carry: the configured one, or a new one.

    Return None if the run is open on purpose, or if no token is configured and only this machine can reach it.
    """
    if run.settings.run_token:
        return run.settings.run_token
    hosts = [run.head.host, *(server.host for server in run.servers_here.values())]
    if not needs_token(run, hosts) and (run.settings.is_open or not run.spans_machines):
        return None
    # Prefer the environment variable, because the machines of one run can share a token through it.
    return os.environ.get(RUN_TOKEN_ENV_VAR) or secrets.token_urlsafe(32)
