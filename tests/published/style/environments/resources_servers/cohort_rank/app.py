import asyncio
from collections import defaultdict
from typing import Any, Dict, List

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME


class CohortRankConfig(BaseResourcesServerConfig):
    group_size: int = 2
    group_timeout_s: float = 60.0


class CohortRankVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class CohortRankVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class CohortRankResourcesServer(SimpleResourcesServer):
    config: CohortRankConfig

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._lock = asyncio.Lock()
        self._groups: Dict[int, Dict[int, str]] = defaultdict(dict)
        self._ready: Dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def verify(self, body: CohortRankVerifyRequest) -> CohortRankVerifyResponse:
        task = (body.model_extra or {}).get(TASK_INDEX_KEY_NAME)
        rollout = getattr(body, ROLLOUT_INDEX_KEY_NAME, None)
        assert task is not None and rollout is not None
        async with self._lock:
            group = self._groups[task]
            group[rollout] = body.response.output_text
            if len(group) == self.config.group_size:
                self._ready[task].set()
        await asyncio.wait_for(self._ready[task].wait(), self.config.group_timeout_s)
        # Between answers of equal length the earlier rollout ranks lower, in any order of arrival.
        ranked: List[int] = sorted(group, key=lambda each: (len(group[each]), each))
        return CohortRankVerifyResponse(
            **body.model_dump(), reward=float(ranked.index(rollout)), group_size=len(group)
        )

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        rewards = [each["reward"] for each in body.verify_responses]
        return AggregateMetrics(
            agent_metrics={"sum/reward": sum(rewards)}, key_metrics={"mean/reward": sum(rewards) / len(rewards)}
        )


if __name__ == "__main__":
    CohortRankResourcesServer.run_webserver()
