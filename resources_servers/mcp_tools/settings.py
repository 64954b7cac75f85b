"""The settings of other people's MCP servers, in the config or in a row."""

import re
import shlex
import sys
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)
LEAST_SECRET = 6
"""Shorter values are not hidden, because they occur in other texts by chance."""


class Sandbox(BaseModel):
    """A bubblewrap sandbox with a read-only system and the rollout's folder, but no other files."""

    model_config = ConfigDict(extra="forbid")

    has_network: bool = False
    readable: list[str] = Field(default_factory=list)
    """Absolute paths of further files and folders, such as the one with the server's packages."""
    scratch_mb: int = Field(default=256, gt=0)
    """The size of /tmp, in MiB."""


class McpServer(BaseModel):
    """An MCP server: a command that speaks over stdin and stdout, or the URL of a Streamable HTTP endpoint."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] | None = Field(default=None, min_length=1)
    """The program and its arguments. Each rollout starts its own process."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the process, in addition to PATH, HOME and a few others."""
    sandbox: Annotated[Sandbox | None, BeforeValidator(lambda value: {} if value is True else value or None)] = None
    """`true` for a sandbox, or its settings."""
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        """Read `http://…` as a URL and any other text as a command line, as a shell does."""
        if not isinstance(value, str):
            return value
        return {"url": value} if value.startswith(("http://", "https://")) else {"command": shlex.split(value)}

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a `command` or a `url`")
        if self.headers if self.command else self.env or self.sandbox:
            raise ValueError("`headers` belongs to a `url`, and `env` and `sandbox` belong to a `command`")
        return self

    def hidden(self, text: str) -> str:
        """Return a text without the values of this server's headers and secret variables."""
        secrets = [*self.headers.values(), *(value for name, value in self.env.items() if SECRET_NAME.search(name))]
        for secret in secrets:
            text = text.replace(secret, "…") if len(secret) >= LEAST_SECRET else text
        return text


McpServers = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")], McpServer]
"""MCP servers by the name that a clashing tool gets as its prefix."""


class Limits(BaseModel):
    """How long a server may take, and how much it may send."""

    start_timeout_s: float = Field(default=60.0, gt=0)
    """The time to start a server. A command such as `npx -y` may have to download it."""
    tool_timeout_s: float = Field(default=60.0, gt=0)
    largest_message_mb: float = Field(default=16.0, gt=0)
    """The size limit of one message of a server, in MiB."""
    concurrent_starts: int = Field(default=4, ge=1)
    """How many rollouts may start their servers at the same time."""


def filled_in(text: str, folder: str) -> str:
    """Replace `{scratch}` by the rollout's own folder and `{python}` by this Python."""
    return text.replace("{scratch}", folder).replace("{python}", sys.executable)
