"""Process-wide state of a server, kept out of the author's class so that names cannot clash."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.web.session_routing import SessionRouting
from nemo_gym.web.telemetry import Telemetry


@dataclass
class ServerContext:
    """A server's process-wide settings, counts and sibling processes."""

    telemetry: Telemetry
    """Counts of this process's calls."""
    cookie_secret: str = field(default_factory=lambda: secrets.token_hex(32))
    """The key that signs session cookies. All processes of an instance get the same key from the launcher."""
    secret_values: SecretValues = field(default_factory=SecretValues)
    """Values that are masked in this server's failure messages."""
    allowed_hosts: frozenset[str] = frozenset()
    """Additional host names by which browsers and proxies may call this server."""
    log_file: str = ""
    """The path of this process's log, if the launcher writes one."""
    processes: int = 1
    """The number of worker processes of this server."""
    siblings: SessionRouting | None = None
    """The other worker processes of this server; None if there are none, or if sessions do not hold state."""
    life: str | None = None
    """An id of this start of the process, stored in new sessions; None if a restart does not lose state."""
