"""Public import path of `nemo_gym.servers.agent`; re-exports only."""

from nemo_gym.config.settings import BaseResponsesAPIAgentConfig
from nemo_gym.published.global_config import get_first_server_config_dict
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.schemas.sessions import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
)
from nemo_gym.servers.agent import BaseResponsesAPIAgent, Body, SimpleResponsesAPIAgent
from nemo_gym.servers.agent_sessions import AgentSessionSetupError, AgentSessionState

__all__ = [
    "AgentCloseSessionRequest", "AgentCloseSessionResponse", "AgentSeedSessionRequest", "AgentSeedSessionResponse",
    "AgentSessionSetupError", "AgentSessionState", "AggregateMetrics", "AggregateMetricsRequest",
    "BaseResponsesAPIAgent", "BaseResponsesAPIAgentConfig", "Body", "SimpleResponsesAPIAgent",
    "get_first_server_config_dict",
]  # fmt: skip
