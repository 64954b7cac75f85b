from typing import Any, Dict, Optional

from fastapi import Request
from pydantic import ConfigDict

import responses_api_agents.own_provider_agent.provider  # noqa: F401 - registers its providers
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.sandbox import AsyncSandbox, SandboxResources, SandboxSpec, resolve_provider_config
from nemo_gym.sandbox.utils import cpu_cap_env
from nemo_gym.server_utils import get_response_json, raise_for_status


class SharedSandboxAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    sandbox_provider: str
    sandbox_resources: Optional[Dict[str, Any]] = None


class SharedSandboxAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    work: str
    check: str


class SharedSandboxAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class SharedSandboxAgent(SimpleResponsesAPIAgent):
    config: SharedSandboxAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: SharedSandboxAgentRunRequest) -> SharedSandboxAgentVerifyResponse:
        provider = resolve_provider_config(self.config.sandbox_provider, get_global_config_dict())
        resources = SandboxResources.from_mapping(self.config.sandbox_resources)
        spec = SandboxSpec(workdir="/work", resources=resources, env=cpu_cap_env(resources.cpu))
        sandbox = AsyncSandbox(provider, spec)
        await sandbox.start()
        try:
            descriptor = await sandbox.serialize(scope="task")
            response = await self.responses(request, body.responses_create_params)
            work = await self._other_side(provider, descriptor, body.work)
            check = await sandbox.exec(body.check)
        finally:
            await sandbox.stop()
        return SharedSandboxAgentVerifyResponse(
            **body.model_dump(),
            response=response,
            reward=float(check.return_code == 0),
            descriptor=descriptor,
            printed=work,
        )

    async def _other_side(self, provider: Dict[str, Any], descriptor: Dict[str, Any], command: str) -> str:
        connected = await AsyncSandbox.connect(descriptor, provider=provider)
        return (await connected.exec(command)).stdout


if __name__ == "__main__":
    SharedSandboxAgent.run_webserver()
