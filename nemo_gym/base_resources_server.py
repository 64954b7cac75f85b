"""Published name of what lives in `nemo_gym.servers.resources` and `nemo_gym.schemas.rollout`."""

from nemo_gym.config.settings import BaseResourcesServerConfig
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
from nemo_gym.servers.resources import BaseResourcesServer, SimpleResourcesServer

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServer",
    "BaseResourcesServerConfig",
    "BaseRunRequest",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "NeMoGymResponse",
    "ReverifyMode",
    "SimpleResourcesServer",
]
