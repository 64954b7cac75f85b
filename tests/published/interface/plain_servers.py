"""A plain server of each tier in the published style, and its model's response."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from nemo_gym import (
    base_resources_server,
    base_responses_api_agent,
    base_responses_api_model,
    openai_utils,
    server_utils,
)

ADDRESS: dict[str, Any] = {"host": "0.0.0.0", "port": 8080, "entrypoint": "", "name": ""}
RESPONSE = {
    "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [],
}  # fmt: skip


class Agent(base_responses_api_agent.SimpleResponsesAPIAgent):
    config: base_responses_api_agent.BaseResponsesAPIAgentConfig

    async def responses(self, body: openai_utils.NeMoGymResponseCreateParamsNonStreaming):
        answer = await self.server_client.post(server_name="m", url_path=self.url_path_for_run("/v1/responses", body))
        return await server_utils.get_response_json(answer)

    async def run(self, body: base_resources_server.BaseRunRequest):
        return {}


class Environment(base_resources_server.SimpleResourcesServer):
    config: base_resources_server.BaseResourcesServerConfig

    async def verify(self, body: base_resources_server.BaseVerifyRequest) -> base_resources_server.BaseVerifyResponse:
        return base_resources_server.BaseVerifyResponse(**body.model_dump(), reward=1.0)


class Model(base_responses_api_model.SimpleResponsesAPIModel):
    config: base_responses_api_model.BaseResponsesAPIModelConfig

    async def responses(self, body: openai_utils.NeMoGymResponseCreateParamsNonStreaming):
        return RESPONSE

    async def chat_completions(self, body: openai_utils.NeMoGymChatCompletionCreateParamsNonStreaming):
        return {}


def build(kind: type, config: type) -> Any:
    return kind(config=config(**ADDRESS), server_client=MagicMock(spec=server_utils.ServerClient))
