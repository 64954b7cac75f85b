from typing import Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeError, call_judge, reraise_judge_errors
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.prompt import PromptConfig, fill_prompt, load_prompt_config


class CalledJudgeResourcesServerConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_prompt_path: str
    use_chat_completions: bool = False


class CalledJudgeVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    question: str
    rubric: Optional[str] = None


class CalledJudgeVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    score: int


class CalledJudgeResourcesServer(SimpleResourcesServer):
    config: CalledJudgeResourcesServerConfig

    @property
    def prompt(self) -> PromptConfig:
        return load_prompt_config(self.config.judge_prompt_path)

    async def verify(self, body: CalledJudgeVerifyRequest) -> CalledJudgeVerifyResponse:
        row = {
            "question": body.question,
            "answer": body.response.output_text,
            "rubric": body.rubric or "Is it true?",
        }
        text = await self._judge(row)
        score = await reraise_judge_errors(self._score_of(text))
        return CalledJudgeVerifyResponse(**body.model_dump(), reward=score / 10, score=score)

    async def _judge(self, row: dict) -> str:
        messages = fill_prompt(self.prompt, row)
        if self.config.use_chat_completions:
            completion = await call_judge(
                self.server_client,
                server_name=self.config.judge_model_server.name,
                url_path="/v1/chat/completions",
                json=NeMoGymChatCompletionCreateParamsNonStreaming(messages=messages, temperature=0.0),
                response_model=NeMoGymChatCompletion,
            )
            return completion.choices[0].message.content or ""
        response = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(
                input=[NeMoGymEasyInputMessage(**message) for message in messages]
            ),
            response_model=NeMoGymResponse,
        )
        return response.output_text

    async def _score_of(self, text: str) -> int:
        if "Score:" not in text:
            raise JudgeError(f"no score in {text!r}")
        return int(text.partition("Score:")[2])


if __name__ == "__main__":
    CalledJudgeResourcesServer.run_webserver()
