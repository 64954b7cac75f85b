"""Public import path of `nemo_gym.servers.resources` and `nemo_gym.schemas.rollout`; re-exports only."""

from nemo_gym.config.settings import BaseResourcesServerConfig
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.schemas.mcp import MCP_METADATA_KEY as NEMO_GYM_MCP_METADATA_KEY
from nemo_gym.schemas.mcp import SESSION_TOKEN_HEADER as NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.schemas.mcp import MCPServerMetadata, normalize_tool_name
from nemo_gym.schemas.responses import Response as NeMoGymResponse
from nemo_gym.schemas.rollout import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseMultiRewardVerifyResponse,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
)
from nemo_gym.schemas.sessions import (
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
)
from nemo_gym.servers.resources import BaseResourcesServer, SimpleResourcesServer
from nemo_gym.servers.tools.tool import RESERVED_MCP_TOOL_NAMES

__all__ = [
    "NEMO_GYM_MCP_METADATA_KEY", "NEMO_GYM_MCP_SESSION_TOKEN_HEADER", "RESERVED_MCP_TOOL_NAMES", "AggregateMetrics",
    "AggregateMetricsRequest", "BaseMultiRewardVerifyResponse", "BaseResourcesServer", "BaseResourcesServerConfig",
    "BaseRunRequest", "BaseSeedSessionRequest", "BaseSeedSessionResponse", "BaseVerifyRequest", "BaseVerifyResponse",
    "MCPServerMetadata", "NeMoGymResponse", "ResourcesCloseSessionRequest", "ResourcesCloseSessionResponse",
    "ResourcesSeedSessionRequest", "ResourcesSeedSessionResponse", "ReverifyMode", "SimpleResourcesServer",
    "normalize_tool_name",
]  # fmt: skip
