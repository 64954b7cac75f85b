"""Public import path of `nemo_gym.servers.agent`; re-exports only."""

from nemo_gym.config.published import get_first_server_config_dict
from nemo_gym.config.settings import BaseResponsesAPIAgentConfig
from nemo_gym.schemas.rollout import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
    AggregateMetrics,
    AggregateMetricsRequest,
)
from nemo_gym.servers.agent import BaseResponsesAPIAgent, Body, SimpleResponsesAPIAgent

__all__ = [
    "AgentCloseSessionRequest",
    "AgentCloseSessionResponse",
    "AgentSeedSessionRequest",
    "AgentSeedSessionResponse",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseResponsesAPIAgent",
    "BaseResponsesAPIAgentConfig",
    "Body",
    "SimpleResponsesAPIAgent",
    "get_first_server_config_dict",
]
