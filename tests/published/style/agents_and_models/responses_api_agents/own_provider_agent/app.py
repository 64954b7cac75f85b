from fastapi import Request
from pydantic import ConfigDict

import responses_api_agents.own_provider_agent.provider  # noqa: F401 - registers its providers
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.sandbox import AsyncSandbox, SandboxSpec
from nemo_gym.sandbox.config import resolve_provider_config
from nemo_gym.server_utils import get_response_json, raise_for_status


class OwnProviderAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    sandbox_provider: str


class OwnProviderAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    script: str
    expected_output: str


class OwnProviderAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class OwnProviderAgent(SimpleResponsesAPIAgent):
    config: OwnProviderAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: OwnProviderAgentRunRequest) -> OwnProviderAgentVerifyResponse:
        provider = resolve_provider_config(self.config.sandbox_provider, get_global_config_dict())
        spec = SandboxSpec(
            workdir="/task", files={"/task/task.sh": body.script}, env={"WHO": "you"}, metadata={"task": "1"}
        )
        async with AsyncSandbox(provider) as sandbox:
            await sandbox.start(spec)
            result = await sandbox.exec(command="sh task.sh", timeout_s=60)
            sandbox_id = sandbox._handle.sandbox_id
        response = await self.responses(request, body.responses_create_params)
        return OwnProviderAgentVerifyResponse(
            **body.model_dump(),
            response=response,
            reward=float(result.stdout == body.expected_output),
            output=result.stdout,
            sandbox_id=sandbox_id,
        )


if __name__ == "__main__":
    OwnProviderAgent.run_webserver()
