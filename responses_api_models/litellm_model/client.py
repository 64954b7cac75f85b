"""Call a provider with litellm, with the retries, timeouts and failures of all model servers."""

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import orjson
from pydantic import Field

from nemo_gym import DataError, EndpointError, ModelFailed, NeMoGymAsyncOpenAI
from nemo_gym.jsonl import JsonObject, dump_json
from responses_api_models.litellm_model.errors import Reply, reply_of_error
from responses_api_models.litellm_model.messages import answer_of, sendable_message

PATH = "/chat/completions"
OWN = "litellm:"
"""The beginning of the URL if the provider's own address is used."""
ENVIRONMENT = {
    # Without this, the import fetches a list of prices.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # In its other mode, the import reads `.env` of the working folder.
    "LITELLM_MODE": "PRODUCTION",
    # By default, only 500 calls to one host have a connection, and further calls wait.
    "AIOHTTP_CONNECTOR_LIMIT": "1000000",
    "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": "1000000",
}
RESERVED = (
    "api_",
    "aws_",
    "azure_",
    "vertex_",
    "mock_",
    "litellm_",
    "extra_headers",
    "headers",
    "base_url",
    "timeout",
)
"""Beginnings of arguments that select the endpoint, the key or the transport."""


@cache
def load_litellm() -> ModuleType:
    """Import litellm with its network access, its own retries and its silent changes of requests switched off."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        litellm = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        raise ModelFailed(
            f"litellm_model needs the package litellm ({error}). Start the run with --auto-install, or install "
            "responses_api_models/litellm_model/requirements.txt"
        ) from error
    litellm.drop_params = False
    litellm.modify_params = False
    litellm.num_retries = None
    litellm.suppress_debug_info = True
    return litellm


class LiteLLMClient(NeMoGymAsyncOpenAI):
    """A client whose requests are sent by litellm."""

    server: str
    """The name of the model server, for messages."""
    arguments: JsonObject = Field(default_factory=dict, repr=False)
    stream: bool = False
    omitted: list[str] = Field(default_factory=list)

    @property
    def send(self) -> Callable[[str, bytes, Mapping[str, str], float], Awaitable[Reply]]:
        """The transport: `/chat/completions` is litellm's `acompletion`."""
        return self._send

    async def create_chat_completion(self, **asked: object) -> JsonObject:
        return await super().create_chat_completion(**_checked(asked, omitted=self.omitted))

    async def _send(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Reply:
        litellm = load_litellm()
        fields = orjson.loads(body)
        base_url = url.removesuffix(PATH)
        # Send the configured arguments only to the configured address, because they may contain secrets.
        arguments = self.arguments if base_url == self.base_url.rstrip("/") else {}
        further = {name: value for name, value in headers.items() if name not in ("Authorization", "Content-Type")}
        asked = {
            **arguments,
            **fields,
            "messages": [sendable_message(message) for message in fields["messages"]],
            "api_base": None if base_url.startswith(OWN) else base_url,
            # litellm would send a key from the environment to an address that a row names.
            "api_key": headers.get("Authorization", "Bearer none").removeprefix("Bearer ") or None,
            "timeout": timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": False,
            "extra_headers": {**arguments.get("extra_headers", {}), **further} or None,
            **({"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}),
        }
        try:
            async with asyncio.timeout(timeout_s):
                answer = await litellm.acompletion(**asked)
                if self.stream:
                    answer = await _joined(litellm, answer)
        except (TimeoutError, litellm.Timeout) as error:
            raise EndpointError(f"did not answer within {timeout_s:g} s") from error
        except EndpointError:
            raise
        except Exception as error:  # noqa: BLE001 - its providers raise errors of many packages
            return reply_of_error(litellm, error, model=fields["model"], server=self.server)
        return 200, dump_json(answer_of(answer.model_dump(exclude_none=True, warnings=False))), {}


async def _joined(litellm: ModuleType, events: Any) -> Any:
    """Return the completion that a stream of events contains, without token counts that the provider did not send."""
    chunks = [chunk async for chunk in events]
    usage = next((each for chunk in chunks if (each := getattr(chunk, "usage", None))), None)
    if usage is None and not any(_says(choice.delta) for chunk in chunks for choice in chunk.choices):
        raise EndpointError("sent a stream without an answer. Set stream to false")
    completion = litellm.stream_chunk_builder(chunks)
    # litellm estimates missing counts with a tokenizer that may be another one than the model's.
    completion.usage = usage
    return completion


def _says(delta: Any) -> bool:
    names = ("content", "reasoning_content", "thinking_blocks", "tool_calls", "function_call", "refusal")
    return any(getattr(delta, name, None) for name in names)


def _checked(asked: JsonObject, *, omitted: list[str]) -> JsonObject:
    """Return the fields without the omitted ones. Raise `DataError` for one that litellm would take as its own."""
    owned = _owned_names()
    for name in asked:
        if name.startswith(RESERVED) or name in owned:
            raise DataError(
                f"the request's field '{name}' is an argument of litellm, which does not send it to the model. Write "
                "it into litellm_params of the server, or remove it from extra_body or from the row."
            )
    return {name: value for name, value in asked.items() if name not in omitted}


@cache
def _owned_names() -> frozenset[str]:
    return frozenset(load_litellm().types.utils.all_litellm_params)
