"""Public import path of the MCP endpoint of resources servers; re-exports only."""

from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.schemas.mcp import MCP_METADATA_KEY as NEMO_GYM_MCP_METADATA_KEY
from nemo_gym.schemas.mcp import SESSION_TOKEN_HEADER as NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.schemas.mcp import MCPServerMetadata, normalize_tool_name
from nemo_gym.servers.mcp.endpoint import expose_if_asked as maybe_auto_expose
from nemo_gym.servers.mcp.tools import CatchAll, McpTool
from nemo_gym.servers.tools.tool import RESERVED_MCP_TOOL_NAMES

__all__ = [
    "NEMO_GYM_MCP_METADATA_KEY", "NEMO_GYM_MCP_SESSION_TOKEN_HEADER", "RESERVED_MCP_TOOL_NAMES", "CatchAll",
    "MCPServerMetadata", "McpTool", "maybe_auto_expose", "normalize_tool_name",
]  # fmt: skip
