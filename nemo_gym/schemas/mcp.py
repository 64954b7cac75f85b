"""What an agent is told of tools that it may reach over MCP, and how such tools are named."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

MCP_METADATA_KEY = "mcp"
"""Where the answer of `/seed_session` holds an `MCPServerMetadata`."""
SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
_PREFIX = "mcp__"


class MCPServerMetadata(BaseModel):
    """Where the tools of a session are served."""

    server_name: str
    url_path: str = "/mcp"
    transport: Literal["http"] = "http"
    headers: dict[str, str] = Field(default_factory=dict)
    """To be sent with every request; `SESSION_TOKEN_HEADER` tells the session."""


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """A tool's own name, without the `mcp__<server>__` that an agent's MCP client put before it.

    With `server_name`, only the prefix of that server is taken away.
    """
    if server_name is not None:
        return name.removeprefix(f"{_PREFIX}{server_name}__")
    server, separator, tool = name.removeprefix(_PREFIX).partition("__")
    return tool if name.startswith(_PREFIX) and server and separator and tool else name
