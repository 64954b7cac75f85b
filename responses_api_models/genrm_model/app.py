"""Serve a generative reward model. The messages of a request may include two answers to compare."""

from functools import cached_property
from typing import ClassVar, Literal

from fastapi import Request
from pydantic import Field, model_validator

from nemo_gym import NeMoGymAsyncOpenAI, NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.dialects.judged import JudgedChatParams, JudgedCreateParams
from responses_api_models.genrm_model.embedded import EmbeddedJudge
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig


class GenRMModelConfig(VLLMModelConfig):
    OF_ENDPOINT: ClassVar[tuple[str, ...]] = ("base_url", "api_key", "model")
    OTHER_ROUTES: ClassVar[tuple[str, ...]] = ("uses_completions_api", "uses_responses_api")

    api: Literal["vllm", "embedded"] = "vllm"
    """`vllm` calls an endpoint. `embedded` is a simple judge in this process, for tests and demos."""
    base_url: str | list[str] = ""
    api_key: str = Field(default="", repr=False)
    model: str = ""

    @model_validator(mode="after")
    def _has_endpoint(self) -> "GenRMModelConfig":
        missing = [name for name in self.OF_ENDPOINT if not getattr(self, name)]
        if missing and self.api == "vllm":
            raise ValueError(f"api: vllm also needs {', '.join(missing)}; `api: embedded` needs no endpoint")
        if self.api == "embedded" and (routes := [name for name in self.OTHER_ROUTES if getattr(self, name)]):
            raise ValueError(
                f"{routes[0]} needs an endpoint, but `api: embedded` does not have one. Leave {routes[0]} out, or set "
                "`api: vllm`"
            )
        return self


class GenRMModel(VLLMModel):
    """A `vllm_model` server that also accepts messages with the roles `response_1`, `response_2` and `principle`."""

    config: GenRMModelConfig

    # A row's own policy model must not replace this endpoint, because the policy would then judge its own answers.
    follows_policies = False

    @cached_property
    def endpoints(self) -> list[NeMoGymAsyncOpenAI | EmbeddedJudge]:
        return [EmbeddedJudge()] if self.config.api == "embedded" else super().endpoints

    @cached_property
    def converter(self) -> ResponsesConverter:
        return super().converter.model_copy(update={"chat_request": JudgedChatParams})

    async def responses(self, request: Request, body: JudgedCreateParams) -> NeMoGymResponse:
        """Send the request to the endpoint's `/chat/completions` and translate the reply to Responses."""
        return await super().responses(request, body)

    async def chat_completions(self, request: Request, body: JudgedChatParams) -> NeMoGymChatCompletion:
        """Forward the request to the endpoint's `/chat/completions`."""
        return await super().chat_completions(request, body)


if __name__ == "__main__":
    GenRMModel.run_webserver()
