from fastapi import Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status


class ForwardingAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class ForwardingAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class ForwardingAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class ForwardingAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class ForwardingAgent(SimpleResponsesAPIAgent):
    """Sends the model exactly the fields of the row."""

    config: ForwardingAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name,
            url_path=self.url_path_for_request("/v1/responses", request),
            json=body.model_dump(exclude_unset=True),
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, request: Request, body: ForwardingAgentRunRequest) -> ForwardingAgentVerifyResponse:
        environment = self.config.resources_server.name
        seeded = await self.server_client.post(
            server_name=environment, url_path="/seed_session", json=body.model_dump(), cookies=request.cookies
        )
        await raise_for_status(seeded)
        answer = await self.responses(request, body.responses_create_params)
        # A sent conversation may be a part of the answer.
        answer.output = [*body.responses_create_params.input, *answer.output]
        verify_request = ForwardingAgentVerifyRequest.model_validate(
            body.model_dump(exclude_unset=True) | {"response": answer.model_dump()}
        )
        verified = await self.server_client.post(
            server_name=environment, url_path="/verify", json=verify_request, cookies=seeded.cookies
        )
        await raise_for_status(verified)
        return ForwardingAgentVerifyResponse.model_validate(await get_response_json(verified))


if __name__ == "__main__":
    ForwardingAgent.run_webserver()
