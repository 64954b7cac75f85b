"""Serve the Responses API from any provider with an OpenAI-compatible API, chosen by name or address."""

from typing import Any

from pydantic import model_validator

from nemo_gym import NeMoGymAsyncOpenAI
from nemo_gym.jsonl import JsonObject
from responses_api_models.inference_provider.providers import Api, Provider, provider_named
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig

OF_PROVIDER = tuple(Provider.model_fields)
"""The settings that default to the chosen provider's values."""


class InferenceProviderConfig(VLLMModelConfig):
    provider: str | None = None
    """The name of a known provider. If it is not set, `base_url` is required."""
    api: Api
    """Whether to call `/chat/completions` or `/responses` for requests to `/v1/responses`."""
    limit: str
    """The Chat Completions field that limits the answer's length: `max_tokens` or `max_completion_tokens`."""

    @model_validator(mode="before")
    @classmethod
    def _with_provider(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        name, address = values.get("provider"), values.get("base_url")
        if not name and not address:
            raise ValueError("provider and base_url are not set. Name a provider, such as openrouter, or set base_url")
        known = provider_named(name) if name else Provider(base_url="")
        chosen = {key: getattr(known, key) for key in OF_PROVIDER if values.get(key) is None}
        uses_responses = (values | chosen)["api"] == "responses" or values.get("uses_responses_api", False)
        return {**values, **chosen, "base_url": address or known.base_url, "uses_responses_api": uses_responses}


class ProviderClient(NeMoGymAsyncOpenAI):
    """A Chat Completions client that uses the provider's name for the limit of an answer's length."""

    limit: str

    async def create_chat_completion(self, **asked: object) -> JsonObject:
        if "max_tokens" in asked:
            asked[self.limit] = asked.pop("max_tokens")
        return await super().create_chat_completion(**asked)


class InferenceProvider(VLLMModel):
    """A `vllm_model` server for hosted models. It adapts requests to the provider's API."""

    config: InferenceProviderConfig

    def client_of(self, **settings: Any) -> NeMoGymAsyncOpenAI:
        """Return a client that uses the provider's name for the limit of an answer's length."""
        return ProviderClient(**settings, limit=self.config.limit)


if __name__ == "__main__":
    InferenceProvider.run_webserver()
