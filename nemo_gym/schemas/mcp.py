"""Metadata of a session's MCP tools, and the removal of prefixes from the tools' names."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

MCP_METADATA_KEY = "mcp"
"""The key of `MCPServerMetadata` in the response of `/seed_session`."""
SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
_PREFIX = "mcp__"


class MCPServerMetadata(BaseModel):
    """The MCP address of a session's tools."""

    server_name: str
    url_path: str = "/mcp"
    transport: Literal["http"] = "http"
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers that every request must contain. `SESSION_TOKEN_HEADER` identifies the session."""


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """Return a tool's own name, without the prefix `mcp__<server>__` added by an agent's MCP client.

    With `server_name`, remove only that server's prefix.
    """
    if server_name is not None:
        return name.removeprefix(f"{_PREFIX}{server_name}__")
    server, separator, tool = name.removeprefix(_PREFIX).partition("__")
    return tool if name.startswith(_PREFIX) and server and separator and tool else name
