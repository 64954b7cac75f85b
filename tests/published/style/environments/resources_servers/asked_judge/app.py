import asyncio
from typing import Any, Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
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
from nemo_gym.server_utils import get_response_json


class AskedJudgeResourcesServerConfig(BaseResourcesServerConfig):
    name: str = "asked_judge"
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_prompt_template: str = "Question: {question}\nAnswer: {answer}\nExpected: {expected}"
    judge_endpoint_max_concurrency: Optional[int] = 8
    yes_label: str = "[[YES]]"


class AskedJudgeRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: str


class AskedJudgeVerifyRequest(AskedJudgeRunRequest, BaseVerifyRequest):
    pass


class AskedJudgeVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    judge_evaluation: Optional[dict[str, Any]] = None


class AskedJudgeResourcesServer(SimpleResourcesServer):
    config: AskedJudgeResourcesServerConfig

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        limit = self.config.judge_endpoint_max_concurrency
        self._judge_endpoint_max_concurrency = asyncio.Semaphore(value=limit) if limit else None

    async def verify(self, body: AskedJudgeVerifyRequest) -> AskedJudgeVerifyResponse:
        params, answer = await self._evaluate(body)
        reward = 1.0 if answer.output_text.strip().startswith(self.config.yes_label) else 0.0
        evaluation = {"responses_create_params": params.model_dump(), "response": answer.model_dump()}
        return AskedJudgeVerifyResponse(**body.model_dump(), reward=reward, judge_evaluation=evaluation)

    async def _evaluate(
        self, body: AskedJudgeVerifyRequest
    ) -> tuple[NeMoGymResponseCreateParamsNonStreaming, NeMoGymResponse]:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        prompt = self.config.judge_prompt_template.format(
            question=body.question, answer=body.response.output_text, expected=body.expected_answer
        )
        params.input = [
            NeMoGymEasyInputMessage(role="system", content="You grade."),
            NeMoGymEasyInputMessage(role="user", content=prompt),
        ]
        if self._judge_endpoint_max_concurrency is None:
            return params, await self._post(params)
        async with self._judge_endpoint_max_concurrency:
            return params, await self._post(params)

    async def _post(self, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/responses", json=params
        )
        return NeMoGymResponse.model_validate(await get_response_json(response))


if __name__ == "__main__":
    AskedJudgeResourcesServer.run_webserver()
