"""Serve a model with the engines of another server of the run, and with settings of its own."""

from functools import cached_property
from typing import Any

from fastapi import Request
from pydantic import Field, model_validator

from nemo_gym import (
    ModelFailed,
    ModelServerRef,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
    get_response_json,
    reply_to,
)
from nemo_gym.jsonl import JsonObject
from responses_api_models.local_vllm_model.crashes import ModelOfEngines
from responses_api_models.vllm_model.app import VLLMModelConfig

CONFIG_PATH = "/get_inner_vllm_config"
OF_ENGINES = ("base_url", "api_key", "model")
"""The settings that the other server knows."""


class LocalVLLMModelProxyConfig(VLLMModelConfig):
    model_server: ModelServerRef
    """The `local_vllm_model` server whose engines are used."""
    base_url: list[str] = Field(default_factory=list)
    """Must not be set, because the other server knows the addresses of its engines."""
    api_key: str = Field(default="", repr=False)
    """Must not be set, because the other server knows the key of its engines."""
    model: str = ""
    """Must not be set, because the other server knows the model's name."""

    @model_validator(mode="before")
    @classmethod
    def _leaves_engines_to_the_other_server(cls, values: object) -> object:
        found = [name for name in OF_ENGINES if isinstance(values, dict) and values.get(name)]
        if found:
            raise ValueError(
                f"{' and '.join(found)} must not be set, because the server that model_server names has started the "
                "engines. For an engine that is already running, use vllm_model"
            )
        return values


class RemoteEngine:
    """An engine that another server starts and restarts."""

    def __init__(self, server_client: ServerClient, server: str, replica: int) -> None:
        self.url, self.restarts = "", 0
        self._client = server_client
        self._server = server
        self._path = f"/ready_engine/{replica}"

    async def wait_until_ready(self) -> None:
        """Look up the engine's address before the first call."""
        if not self.url:
            await self._look_up()

    async def has_ended(self, restarts: int, _within_s: float) -> bool:
        """Ask the other server whether the engine has crashed. If so, wait until it is ready again."""
        if self.restarts != restarts:
            return True
        return await self._look_up(restarts=restarts)

    async def _look_up(self, **known: int) -> bool:
        found = await asked(self._client, self._server, self._path, params=known)
        self.url, self.restarts = found["url"], found["restarts"]
        return bool(found["has_ended"])


async def asked(client: ServerClient, server: str, path: str, **asking: Any) -> JsonObject:
    """Return the other server's reply to a GET request."""
    call = client.get(server, path, **asking)
    reply = await reply_to(call, server=server, during=path, otherwise=ModelFailed, tolerates=(404,))
    if reply.status == 404:
        raise ModelFailed(
            f"model_server names '{server}', which is not a local_vllm_model server. Name one, or use vllm_model",
            server=server,
        )
    found: JsonObject = await get_response_json(reply)
    return found


class LocalVLLMModelProxy(ModelOfEngines):
    """A `vllm_model` server in front of the engines of a `local_vllm_model` server."""

    config: LocalVLLMModelProxyConfig

    @cached_property
    def engines(self) -> list[RemoteEngine]:
        server = self.config.model_server.name
        return [RemoteEngine(self.server_client, server, replica) for replica in range(len(self.config.base_url))]

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Send the request to one of the engines."""
        await self._find_engines()
        return await super().responses(request, body)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymChatCompletion:
        """Forward the request to one of the engines."""
        await self._find_engines()
        return await super().chat_completions(request, body)

    async def _find_engines(self) -> None:
        """Look up the engines before the first call, because they may still be loading when this server starts."""
        if not self.config.base_url:
            server = self.config.model_server.name
            found = await asked(self.server_client, server, CONFIG_PATH)
            self.config = self.config.model_copy(update={name: found[name] for name in OF_ENGINES})


if __name__ == "__main__":
    LocalVLLMModelProxy.run_webserver()
