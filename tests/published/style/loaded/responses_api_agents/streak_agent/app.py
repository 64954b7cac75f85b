from typing import Any

from fastapi import Body, Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status


class StreakAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class StreakRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class StreakVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class StreakAgent(SimpleResponsesAPIAgent):
    config: StreakAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: StreakRunRequest) -> StreakVerifyResponse:
        answer = await self.responses(request, body.responses_create_params)
        response = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=body.model_dump() | {"response": answer.model_dump()},
        )
        await raise_for_status(response)
        return StreakVerifyResponse.model_validate(await get_response_json(response))

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        metrics = super().compute_metrics(tasks)
        metrics["tasks_won"] = sum(all(rollout["reward"] == 1.0 for rollout in task) for task in tasks)
        return metrics

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return super().get_key_metrics(agent_metrics) | {"tasks_won": agent_metrics["tasks_won"]}


if __name__ == "__main__":
    StreakAgent.run_webserver()
