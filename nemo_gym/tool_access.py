"""Public import path of `nemo_gym.schemas.tool_access`; re-exports only."""

from nemo_gym.schemas.tool_access import DirectHttpToolAccess, McpConnection, McpToolAccess, ToolAccess

__all__ = ["DirectHttpToolAccess", "McpConnection", "McpToolAccess", "ToolAccess"]
