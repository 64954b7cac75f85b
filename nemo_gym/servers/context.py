"""What a server has of the process that serves it, and of none of its author's."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.web.session_routing import SessionRouting
from nemo_gym.web.telemetry import Telemetry


@dataclass
class ServerContext:
    """Where a server stands in its run."""

    telemetry: Telemetry
    """What this process counts of its calls."""
    cookie_secret: str = field(default_factory=lambda: secrets.token_hex(32))
    """Signs the session cookie; the launcher gives all processes of an instance the same one."""
    secret_values: SecretValues = field(default_factory=SecretValues)
    """What is hidden in what this server tells of failures."""
    processes: int = 1
    """How many processes serve this server."""
    siblings: SessionRouting | None = None
    """The other processes that serve this server, where there are any and sessions are kept."""
    life: str | None = None
    """Marks the sessions that this life of the process begins; None where it does not matter which life it was."""
