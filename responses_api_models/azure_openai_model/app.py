"""Forward every call to a model that is deployed at Azure OpenAI."""

import re
from functools import cached_property
from urllib.parse import quote

from pydantic import Field, field_validator, model_validator

from nemo_gym import (
    EndpointError,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
)
from nemo_gym.dialects.endings import Ending
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig

API_VERSION = "api-version"
DEPLOYMENT = re.compile(r"(?P<resource>.*?)(/openai)?(/deployments/(?P<name>[^/]+))?")


class AzureModelServerConfig(SimpleModelServerConfig):
    """The server's settings: the Azure resource, its API key and the deployment."""

    openai_base_url: str
    """The Azure resource's address. Add `/openai/v1` at the end, unless you need the older per-deployment paths."""
    openai_model: str
    """The name of the deployment."""
    default_query: dict[str, str] = Field(default_factory=dict)
    """Query parameters of every request, such as `api-version`, which older paths need. Null values are not sent."""
    content_filter_is_failure: bool = False
    """Whether a filtered prompt fails the rollout. Otherwise, the empty answer is graded."""

    @field_validator("default_query", mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _has_api_version(self) -> "AzureModelServerConfig":
        if not self.is_v1 and API_VERSION not in self.default_query:
            raise ValueError(
                f"openai_base_url does not end with /openai/v1, so default_query needs an {API_VERSION}, such as "
                f"{{{API_VERSION}: '2024-10-21'}}"
            )
        return self

    @property
    def is_v1(self) -> bool:
        """Whether the address uses the paths of the OpenAI API, which take the deployment's name as `model`."""
        return self.openai_base_url.rstrip("/").endswith("/v1")

    @property
    def urls(self) -> tuple[str, str]:
        """The base URLs for Responses and for Chat Completions."""
        given = self.openai_base_url.rstrip("/")
        if self.is_v1:
            return given, given
        parts = DEPLOYMENT.fullmatch(given)
        assert parts is not None
        root = f"{parts['resource']}/openai"
        return root, f"{root}/deployments/{parts['name'] or quote(self.openai_model, safe='')}"


class AzureModelServer(SimpleModelServer):
    """An `openai_model` server with Azure's URLs and key header. By default, filtered prompts get an empty answer."""

    config: AzureModelServerConfig

    @cached_property
    def endpoint(self) -> NeMoGymAsyncOpenAI:
        return self._client(self.config.urls[0])

    @cached_property
    def chat_endpoint(self) -> NeMoGymAsyncOpenAI:
        return self._client(self.config.urls[1])

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """Forward the request to the deployment's `/chat/completions`."""
        return await self._completed(self.chat_endpoint, body)

    async def aclose(self) -> None:
        await super().aclose()
        await self.chat_endpoint.aclose()

    def _client(self, url: str) -> NeMoGymAsyncOpenAI:
        return NeMoGymAsyncOpenAI(
            base_url=url,
            api_key=self.config.openai_api_key,
            key_header="api-key",
            default_headers=self.config.openai_default_headers,
            default_query=self.config.default_query,
            timeout_s=self.config.request_timeout_s,
            tries=self.config.request_tries,
            follows_policy=True,
        )

    def _ending(self, error: EndpointError) -> Ending:
        ending = super()._ending(error)
        if ending == "content_filter" and self.config.content_filter_is_failure:
            raise error
        return ending


if __name__ == "__main__":
    AzureModelServer.run_webserver()
