from typing import List, Optional

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class DebateAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    opponent_model_server: Optional[ModelServerRef] = None
    debaters: List[ModelServerRef] = []
    rounds: int = 1


class DebateRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class DebateVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class DebateVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class DebateAgent(SimpleResponsesAPIAgent):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    config: DebateAgentConfig
    _runs: int = PrivateAttr(default=0)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.get("/runs")
        async def runs() -> int:
            return self._runs

        @app.middleware("http")
        async def count(request: Request, call_next):
            if request.url.path.endswith("/run"):
                self._runs += 1
            response = await call_next(request)
            response.headers["X-Runs"] = str(self._runs)
            return response

        return app

    async def _say(self, server: ModelServerRef, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        response = await self.server_client.post(server_name=server.name, url_path="/v1/responses", json=body)
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        said, usage = (
            [],
            NeMoGymResponseUsage(
                input_tokens=0,
                output_tokens=0,
                total_tokens=0,
                input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=0),
                output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=0),
            ),
        )
        for _ in range(self.config.rounds):
            for server in [self.config.model_server, self.config.opponent_model_server or self.config.debaters[0]]:
                answer = await self._say(server, body.model_copy(update={"input": body.input + said}))
                said += answer.output
                said.append(NeMoGymEasyInputMessage(role="user", content=f"{server.name} has spoken."))
                usage = NeMoGymResponseUsage.sum_from_list([usage, answer.usage])
        answer.output = said
        answer.usage = usage
        return answer

    async def run(self, request: Request, body: DebateRunRequest = Body()) -> DebateVerifyResponse:
        cookies = request.cookies
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(seeded)
        response = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        if not response.ok:
            raise HTTPException(status_code=502, detail=(await response.read()).decode())
        verify_request = DebateVerifyRequest.model_validate(body.model_dump() | {"response": await response.json()})
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=seeded.cookies,
        )
        await raise_for_status(verified)
        result = DebateVerifyResponse.model_validate(await verified.json()).model_dump()
        return JSONResponse({**result, "runs": self._runs})


if __name__ == "__main__":
    DebateAgent.run_webserver()
