"""Serve the Responses API from any provider that the litellm package supports."""

import asyncio
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from nemo_gym import NeMoGymAsyncOpenAI
from nemo_gym.jsonl import JsonObject
from responses_api_models.litellm_model.client import LiteLLMClient, load_litellm
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from responses_api_models.vllm_model.reasoning import SentReasoning

OF_ENGINES = ("uses_responses_api", "uses_completions_api", "return_token_id_information")
"""Settings of `vllm_model` for routes and token ids, which litellm does not have for all providers."""


class LiteLLMModelConfig(VLLMModelConfig):
    model: str
    """The provider and the model's name there, such as `anthropic/claude-sonnet-4-5`."""
    base_url: str = ""
    """The endpoint's address, in the form that litellm expects. Default: the provider's own."""
    api_key: str = Field(default="", repr=False)
    """The API key. Default: the environment variable that litellm reads for this provider."""
    litellm_params: JsonObject = Field(default_factory=dict, repr=False)
    """More arguments of litellm's `acompletion`, such as `{aws_region_name: eu-west-1}`."""
    stream: bool = False
    """Whether to stream the answer from the provider, which some require for long answers."""
    omitted_fields: list[str] = Field(default_factory=list)
    """Fields that are never sent, such as `[seed]`, if the provider does not support them."""
    sends_reasoning: SentReasoning = "none"

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: object) -> object:
        optional = ("base_url", "api_key")
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None or name not in optional}

    @model_validator(mode="after")
    def _is_of_any_provider(self) -> Self:
        for name in OF_ENGINES:
            if getattr(self, name):
                raise ValueError(f"{name} is not possible with litellm. Use vllm_model, or leave {name} out")
        return self


class LiteLLMModel(VLLMModel):
    """A `vllm_model` server whose calls are made by the litellm package."""

    config: LiteLLMModelConfig

    @cached_property
    def endpoints(self) -> list[NeMoGymAsyncOpenAI]:
        config = self.config
        client = self.client_of(
            base_url=config.base_url or f"litellm:{config.model}",
            api_key=config.api_key,
            default_headers=config.default_headers,
            timeout_s=config.request_timeout_s,
            tries=config.request_tries,
            follows_policy=True,
        )
        return [client]

    def client_of(self, **settings: Any) -> NeMoGymAsyncOpenAI:
        """Return a client that calls the provider with litellm."""
        config = self.config
        return LiteLLMClient(
            **settings,
            server=config.name,
            arguments=config.litellm_params,
            stream=config.stream,
            omitted=config.omitted_fields,
        )

    async def startup(self) -> None:
        """Import litellm, which takes seconds, before the first call."""
        await asyncio.to_thread(load_litellm)


if __name__ == "__main__":
    LiteLLMModel.run_webserver()
