from typing import Any, Dict

from fastapi import Body

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymResponseFunctionToolCall, NeMoGymResponseOutputMessage


class SummedMetricsResourcesServerConfig(BaseResourcesServerConfig):
    pass


class SummedMetricsVerifyResponse(BaseVerifyResponse):
    num_calls: int
    num_messages: int
    details: Dict[str, Any]


class SummedMetricsResourcesServer(SimpleResourcesServer):
    config: SummedMetricsResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> SummedMetricsVerifyResponse:
        calls = [item for item in body.response.output if isinstance(item, NeMoGymResponseFunctionToolCall)]
        messages = [item for item in body.response.output if isinstance(item, NeMoGymResponseOutputMessage)]
        return SummedMetricsVerifyResponse(
            **body.model_dump(),
            reward=float(len(messages) == 1),
            num_calls=len(calls),
            num_messages=len(messages),
            details={"names": [call.name for call in calls]},
        )

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        metrics = await super().aggregate_metrics(body)
        total = sum(row["num_messages"] for row in body.verify_responses)
        metrics.agent_metrics["sum/num_messages"] = total
        metrics.key_metrics = {"sum/num_messages": total, "mean/reward": metrics.agent_metrics["mean/reward"]}
        return metrics


if __name__ == "__main__":
    SummedMetricsResourcesServer.run_webserver()
