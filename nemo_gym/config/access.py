"""Access control for a run's servers: the run token, and the host names by which browsers may call the servers."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.sandbox_networks import networked_sandbox
from nemo_gym.errors import ConfigError

if TYPE_CHECKING:
    from nemo_gym.config.models import Origin, RunConfig

RUN_TOKEN_KEY = "run_token"
RUN_TOKEN_ENV_VAR = "NEMO_GYM_RUN_TOKEN"
"""The environment variable with the run token, for callers on other machines and for runs on several machines."""
LOOPBACK_TOKEN_KEY = "loopback_requires_token"
ALLOWED_HOSTS_KEY = "allowed_hosts"
POLICY_OVERRIDE_KEY = "allow_policy_override"
PROTECTING_KEYS = (RUN_TOKEN_KEY, LOOPBACK_TOKEN_KEY)
"""Keys that restrict access. If one cannot be resolved, the run is not started, because it might be open."""

_TOKEN = re.compile(r"[!-~]{16,}")
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f.]*:[0-9a-f:.]+")


def configured_token(plain: Mapping[str, object]) -> str | None:
    """Return the configured token, or None. Raise `ConfigError` if it is too short or cannot be sent in a header."""
    given = plain.get(RUN_TOKEN_KEY)
    if given is None or given is False or given == "":
        return None
    if not isinstance(given, str) or not _TOKEN.fullmatch(given):
        raise ConfigError(
            f"{RUN_TOKEN_KEY}: must be text of at least 16 printable ASCII characters, without spaces. "
            "Remove it to let the run create a token, or set it to false to open the run to everyone."
        )
    return given


def is_open(plain: Mapping[str, object]) -> bool:
    """Return whether `run_token: false` opens the run to everyone who can reach its servers."""
    return plain.get(RUN_TOKEN_KEY) is False


def reachable_hosts(run: RunConfig) -> list[str]:
    """Return the run's host addresses that other machines can reach, the head server's first."""
    hosts = dict.fromkeys([run.head.host, *(server.host for server in run.servers_here.values())])
    return [host for host in hosts if not is_loopback(host)]


def needs_token(plain: Mapping[str, object], hosts: Iterable[str]) -> bool:
    """Return whether calls to these hosts must carry a token.

    The token is required if other machines can reach one of the hosts, if `loopback_requires_token` is set, or if
    programs in sandboxes can reach loopback addresses. With `run_token: false`, it is never required.
    """
    return not is_open(plain) and (closes_loopback(plain) or not all(map(is_loopback, hosts)))


def closes_loopback(plain: Mapping[str, object]) -> bool:
    """Return whether calls to loopback addresses also require the run token."""
    return plain.get(LOOPBACK_TOKEN_KEY) is True or networked_sandbox(plain) is not None


def allowed_hosts(plain: Mapping[str, object]) -> frozenset[str]:
    """Return the additional host names by which browsers and proxies may call the servers, in lower case."""
    given = plain.get(ALLOWED_HOSTS_KEY)
    return frozenset(_as_host(each) for each in given) if isinstance(given, list) else frozenset()


def allows_policy_override(plain: Mapping[str, object]) -> bool:
    """Return whether a row may override the endpoint, the API key and the model of its model calls."""
    return plain.get(POLICY_OVERRIDE_KEY) is True


def check_access(plain: Mapping[str, object], places: Mapping[str, Origin]) -> None:
    """Raise ConfigError if the access control settings are invalid or contradict each other."""
    closes, hosts = plain.get(LOOPBACK_TOKEN_KEY), plain.get(ALLOWED_HOSTS_KEY)
    for key in (LOOPBACK_TOKEN_KEY, POLICY_OVERRIDE_KEY):
        if not isinstance(given := plain.get(key), bool | None):
            raise ConfigError(f"{_place(key, places)} must be true or false, but is {given!r}.")
    if closes and is_open(plain):
        raise ConfigError(
            f"{_place(LOOPBACK_TOKEN_KEY, places)} true contradicts {RUN_TOKEN_KEY}: false, which opens the run to "
            "everyone. Remove one of them."
        )
    for key in PROTECTING_KEYS:
        if plain.get(key) is False and (setting := networked_sandbox(plain)):
            raise ConfigError(
                f"{_place(key, places)} false would let programs in sandboxes call the servers of this run, because "
                f"of {setting}. Remove {key}, or give the sandboxes no network of this machine."
            )
    if hosts is not None and not (isinstance(hosts, list) and all(_HOST.fullmatch(_as_host(each)) for each in hosts)):
        raise ConfigError(
            f"{_place(ALLOWED_HOSTS_KEY, places)} must be a list of host names without scheme, port and wildcards, "
            f"such as [gym.internal], but is {hosts!r}."
        )


def _as_host(name: object) -> str:
    return str(name).lower().strip("[]").rstrip(".")


def _place(key: str, places: Mapping[str, Origin]) -> str:
    return f"{places[key]}: {key}:" if key in places else f"{key}:"


def token_of_run(run: RunConfig) -> str | None:
    """Return the token that calls to a run's servers must carry: the configured one, or a new one.

    Return None if the run is open on purpose, or if no token is configured and only this machine can reach it.
    """
    hosts = [run.head.host, *(server.host for server in run.servers_here.values())]
    if configured := configured_token(run.plain):
        return configured
    if not needs_token(run.plain, hosts) and (is_open(run.plain) or not run.spans_machines):
        return None
    # Prefer the environment variable, because the machines of one run can share a token through it.
    return os.environ.get(RUN_TOKEN_ENV_VAR) or secrets.token_urlsafe(32)
