"""Who may call the servers of a run: anybody where only this machine reaches them, else who has the run's token."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import Any

from nemo_gym.config.models import RunConfig
from nemo_gym.errors import ConfigError

RUN_TOKEN_KEY = "run_token"
RUN_TOKEN_ENV_VAR = "NEMO_GYM_RUN_TOKEN"
"""Holds the token of a run elsewhere, for whoever calls its servers."""

_TOKEN = re.compile(r"[!-~]{16,}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def configured_token(plain: Mapping[str, Any]) -> str | None:
    """The token that a configuration gives; None where it gives none. `ConfigError` for one that cannot be sent."""
    given = plain.get(RUN_TOKEN_KEY)
    if given is None or given == "":
        return None
    if not isinstance(given, str) or not _TOKEN.fullmatch(given):
        raise ConfigError(
            f"{RUN_TOKEN_KEY} has to be text of at least 16 characters, without blanks: letters, digits and signs of "
            "ASCII. Leave it out, and the run makes one of its own."
        )
    return given


def token_of_run(run: RunConfig) -> str | None:
    """What calls to the servers of a run have to carry: the configured token, else a new one.

    None where nothing is configured and only this machine can reach the servers.
    """
    given = configured_token(run.plain)
    if given is not None:
        return given
    hosts = [run.head.host, *(server.host for server in run.servers.values())]
    return None if all(map(is_loopback, hosts)) else secrets.token_urlsafe(32)
