"""How a session of an agent reaches the tools of other servers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Access(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    """The name of the server that has the tools."""
    required: bool = True
    """Whether the agent must fail if it cannot reach the tools."""


class DirectHttpToolAccess(_Access):
    """Access over HTTP: each tool is a POST route of the server."""

    kind: Literal["direct_http"] = "direct_http"
    base_url: str
    cookies: dict[str, str] = Field(default_factory=dict)
    """The cookies of the session in which the tools are called."""
    headers: dict[str, str] = Field(default_factory=dict)


class McpConnection(BaseModel):
    """The address of an MCP server, with the headers that each request needs."""

    model_config = ConfigDict(extra="forbid")

    url: str
    headers: dict[str, str] = Field(default_factory=dict)


class McpToolAccess(_Access):
    """Access over MCP."""

    kind: Literal["mcp"] = "mcp"
    connection: McpConnection


ToolAccess = Annotated[DirectHttpToolAccess | McpToolAccess, Field(discriminator="kind")]
