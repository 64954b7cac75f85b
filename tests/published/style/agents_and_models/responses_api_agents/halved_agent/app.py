from fastapi import Body, Request

from nemo_gym.base_resources_server import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)


class HalvedAgentConfig(SimpleAgentConfig):
    system_prompt: str = "You are brief."
    factor: float = 0.5


class HalvedAgentVerifyResponse(SimpleAgentVerifyResponse):
    whole_reward: float


class HalvedAgent(SimpleAgent):
    config: HalvedAgentConfig

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> HalvedAgentVerifyResponse:
        params = body.responses_create_params
        given = params.input
        if isinstance(given, str):
            given = [NeMoGymEasyInputMessage(role="user", content=given)]
        prompt = NeMoGymEasyInputMessage(role="system", content=self.config.system_prompt)
        body = body.model_copy(
            update={"responses_create_params": params.model_copy(update={"input": [prompt] + given})}
        )
        result = await super().run(request, body)
        return HalvedAgentVerifyResponse(
            **result.model_dump(exclude={"reward"}),
            reward=result.reward * self.config.factor,
            whole_reward=result.reward,
        )

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        response = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(response)
        metrics = AggregateMetrics.model_validate(await get_response_json(response))
        metrics.key_metrics["factor"] = self.config.factor
        return metrics


class BriefAgent(HalvedAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))


if __name__ == "__main__":
    BriefAgent.run_webserver()
