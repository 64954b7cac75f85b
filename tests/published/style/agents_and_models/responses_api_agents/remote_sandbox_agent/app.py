from typing import Any, Dict, Union

from fastapi import Request
from pydantic import ConfigDict, field_validator

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxSpec,
    get_provider_class,
    resolve_provider_config,
    resolve_provider_metadata,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class RemoteSandboxAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    sandbox_provider: Union[str, Dict[str, Any]] = "sandbox"

    @field_validator("sandbox_provider")
    @classmethod
    def inline_provider_is_known(cls, value: Union[str, Dict[str, Any]]) -> Union[str, Dict[str, Any]]:
        if isinstance(value, dict):
            (name,) = resolve_provider_config(value)
            get_provider_class(name)
        return value


class RemoteSandboxAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class RemoteSandboxAgent(SimpleResponsesAPIAgent):
    config: RemoteSandboxAgentConfig

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        named_configs = get_global_config_dict()
        self._provider = resolve_provider_config(self.config.sandbox_provider, named_configs)
        self._metadata = resolve_provider_metadata(self.config.sandbox_provider, named_configs)

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: BaseRunRequest) -> RemoteSandboxAgentVerifyResponse:
        response = await self.responses(request, body.responses_create_params)
        error = None
        try:
            async with AsyncSandbox(self._provider) as sandbox:
                await sandbox.start(SandboxSpec(image="debian:12", metadata=self._metadata))
        except ValueError as e:
            error = str(e)
        return RemoteSandboxAgentVerifyResponse(
            **body.model_dump(),
            response=response,
            reward=float(error is None),
            sandbox_error=error,
            provider=list(self._provider),
            labels=self._metadata,
        )


if __name__ == "__main__":
    RemoteSandboxAgent.run_webserver()
