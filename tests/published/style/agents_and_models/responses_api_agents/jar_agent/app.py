from fastapi import Request, Response
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status


class JarAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class JarAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class JarAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class JarAgent(SimpleResponsesAPIAgent):
    config: JarAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name,
            url_path=self.url_path_for_request("/v1/responses", request),
            json=body,
            cookies=request.cookies,
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(
        self, request: Request, response: Response, body: JarAgentRunRequest = Body()
    ) -> JarAgentVerifyResponse:
        jar = dict(request.cookies)

        async def post(server_name, url_path, json):
            answer = await self.server_client.post(server_name=server_name, url_path=url_path, json=json, cookies=jar)
            await raise_for_status(answer)
            jar.update({key: getattr(value, "value", value) for key, value in answer.cookies.items()})
            return await get_response_json(answer)

        environment = self.config.resources_server.name
        await post(environment, "/seed_session", body.model_dump())
        await post(environment, "/increment_counter", {"count": body.step})
        answered = await post(
            self.config.name, self.url_path_for_run("/v1/responses", body), body.responses_create_params
        )
        verified = await post(environment, "/verify", body.model_dump() | {"response": answered})
        for key, value in jar.items():
            response.set_cookie(key, value)
        response.headers["x-counted"] = str(len(jar))
        return JarAgentVerifyResponse.model_validate(verified)


if __name__ == "__main__":
    JarAgent.run_webserver()
