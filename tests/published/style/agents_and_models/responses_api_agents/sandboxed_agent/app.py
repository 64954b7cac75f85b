from typing import Any, Dict

from fastapi import Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxResources,
    SandboxSpec,
    resolve_provider_config,
    resolve_provider_metadata,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class SandboxedAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    sandbox_provider: str = "sandbox"
    command_timeout_s: float = 20.0


class SandboxedAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    setup_script: str
    check: str


class SandboxedAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class SandboxedAgent(SimpleResponsesAPIAgent):
    config: SandboxedAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: SandboxedAgentRunRequest) -> SandboxedAgentVerifyResponse:
        config = get_global_config_dict()
        spec = SandboxSpec(
            env={"GREETING": "hello"},
            files={"setup.sh": body.setup_script},
            metadata=resolve_provider_metadata(self.config.sandbox_provider, config),
            resources=SandboxResources(cpu=1, memory_mib=512),
        )
        sandbox = AsyncSandbox(resolve_provider_config(self.config.sandbox_provider, config), spec)
        await sandbox.start()
        try:
            setup = await self._run_command(sandbox, "sh setup.sh")
            response = await self.responses(request, body.responses_create_params)
            check = await self._run_command(sandbox, body.check)
        finally:
            await sandbox.stop()
        return SandboxedAgentVerifyResponse(
            **body.model_dump(),
            response=response,
            reward=float(check["return_code"] == 0),
            sandbox={"setup": setup, "check": check, "labels": dict(spec.metadata)},
        )

    async def _run_command(self, sandbox: AsyncSandbox, command: str) -> Dict[str, Any]:
        result = await sandbox.exec(command, timeout_s=self.config.command_timeout_s)
        return {"stdout": result.stdout, "return_code": result.return_code, "error_type": result.error_type}


if __name__ == "__main__":
    SandboxedAgent.run_webserver()
