from typing import List

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class AskedUserConfig(BaseResourcesServerConfig):
    user_model_server: ModelServerRef
    user_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    max_questions: int = 1


class AskedUserSeedRequest(BaseSeedSessionRequest):
    persona: str


class AskRequest(BaseModel):
    question: str


class AskResponse(BaseModel):
    answer: str
    questions_left: int


class AskedUserVerifyRequest(BaseVerifyRequest):
    persona: str


class AskedUserVerifyResponse(AskedUserVerifyRequest, BaseVerifyResponse):
    asked: List[str] = Field(default_factory=list)


class AskedUserResourcesServer(SimpleResourcesServer):
    config: AskedUserConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/ask")(self.ask)
        return app

    async def seed_session(self, request: Request, body: AskedUserSeedRequest) -> BaseSeedSessionResponse:
        request.session["persona"] = body.persona
        request.session["asked"] = []
        return await super().seed_session(body)

    async def ask(self, request: Request, body: AskRequest) -> AskResponse:
        asked = request.session["asked"]
        if len(asked) >= self.config.max_questions:
            return AskResponse(answer="I have to go.", questions_left=0)
        asked.append(body.question)
        create_params = self.config.user_responses_create_params.model_copy(deep=True)
        create_params.input = [
            NeMoGymEasyInputMessage(role="system", content=request.session["persona"]),
            *[NeMoGymEasyInputMessage(role="user", content=each) for each in asked],
        ]
        response = await self.server_client.post(
            server_name=self.config.user_model_server.name,
            url_path="/v1/responses",
            json=create_params,
            cookies=request.session.get("user_cookies"),
        )
        await raise_for_status(response)
        answer = NeMoGymResponse.model_validate(await get_response_json(response))
        request.session["user_cookies"] = {
            key: str(getattr(value, "value", value)) for key, value in response.cookies.items()
        }
        return AskResponse(answer=answer.output_text, questions_left=self.config.max_questions - len(asked))

    async def verify(self, request: Request, body: AskedUserVerifyRequest) -> AskedUserVerifyResponse:
        asked = request.session.pop("asked", [])
        return AskedUserVerifyResponse(**body.model_dump(), reward=len(asked) / self.config.max_questions, asked=asked)


if __name__ == "__main__":
    AskedUserResourcesServer.run_webserver()
