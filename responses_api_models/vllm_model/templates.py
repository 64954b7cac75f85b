"""Render the messages of a request with the model's chat template, at the engine or with a local tokenizer."""

import asyncio
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from nemo_gym import DataError, EndpointError, NeMoGymAsyncOpenAI
from nemo_gym.dialects.chat_parts import text_of_parts
from nemo_gym.jsonl import JsonObject, loads_exact
from responses_api_models.vllm_model.tokens import TOKEN_FIELDS

NO_SUCH_ROUTE = (404, 405, 501)
OPTIONS = ("add_generation_prompt", "chat_template", "continue_final_message", "documents")
TEMPLATE_FIELDS = ("messages", "tools", "chat_template_kwargs", *OPTIONS)
"""The fields of a chat request that determine its prompt."""


class Prompt(NamedTuple):
    """A conversation as the tokens that the model receives."""

    tokens: list[int]
    room: int | None
    """The number of tokens left in the context, or None if it is unknown."""


class ChatTemplate(Protocol):
    """An interface for rendering requests as prompts and decoding tokens."""

    async def rendered(self, fields: JsonObject) -> Prompt:
        """Return the prompt for the fields of a chat request."""

    async def text_of(self, tokens: list[int]) -> str:
        """Return the text of tokens, including special tokens."""


class EngineTemplate:
    """The chat template of an engine, applied through its `/tokenize` and `/detokenize` routes."""

    def __init__(self, endpoint: NeMoGymAsyncOpenAI, model: str) -> None:
        self.endpoint = endpoint
        self.model = model

    async def rendered(self, fields: JsonObject) -> Prompt:
        asked = {name: value for name, value in _template_fields(fields).items() if value is not None}
        try:
            reply = await self.endpoint.create_tokenize(model=self.model, **asked)
        except EndpointError as error:
            if error.status in NO_SUCH_ROUTE:
                raise DataError(
                    f"uses_completions_api is on, but {self.endpoint.url} does not serve /tokenize, which renders "
                    "prompts. Set 'tokenizer' to the folder of the model's tokenizer."
                ) from error
            raise
        tokens, longest = reply.get("tokens"), reply.get("max_model_len")
        if not isinstance(tokens, list) or not tokens:
            raise DataError(f"/tokenize of {self.endpoint.url} returned no tokens. Check the engine's version.")
        return Prompt(tokens, None if longest is None else longest - len(tokens))

    async def text_of(self, tokens: list[int]) -> str:
        reply = await self.endpoint.post("/detokenize", model=self.model, tokens=tokens)
        return str(reply.get("prompt") or "")


class LocalTemplate:
    """The chat template of a tokenizer in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Use a lock, because two threads must not use the tokenizer at the same time.
        self._free = asyncio.Lock()

    async def rendered(self, fields: JsonObject) -> Prompt:
        async with self._free:
            return Prompt(await asyncio.to_thread(self._render, _template_fields(fields)), room=None)

    async def text_of(self, tokens: list[int]) -> str:
        async with self._free:
            return str(await asyncio.to_thread(lambda: self._tokenizer.decode(tokens)))

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise DataError("'tokenizer' needs the package transformers: pip install transformers") from error
        try:
            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise DataError(f"the tokenizer in {self.folder} cannot be loaded: {error}") from error

    def _render(self, fields: JsonObject) -> list[int]:
        messages = [_for_template(message) for message in fields.pop("messages")]
        arguments = fields.pop("chat_template_kwargs", None) or {}
        settings = {"add_generation_prompt": True, **fields, **arguments}
        tokenizer = self._tokenizer
        try:
            tokens = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **settings)
        except Exception as error:  # templates can raise any exception
            raise DataError(f"the chat template in {self.folder} failed: {error}") from error
        return list(tokens)


def _template_fields(fields: JsonObject) -> JsonObject:
    """Return the fields that determine the prompt, with the reasoning effort as an argument of the template."""
    asked = {name: fields[name] for name in TEMPLATE_FIELDS if name in fields}
    asked["messages"] = [
        {name: value for name, value in message.items() if name not in TOKEN_FIELDS} for message in fields["messages"]
    ]
    if fields.get("reasoning_effort") is not None:
        effort = {"reasoning_effort": fields["reasoning_effort"]}
        asked["chat_template_kwargs"] = effort | (fields.get("chat_template_kwargs") or {})
    return asked


def _for_template(message: JsonObject) -> JsonObject:
    """Return a message as engines pass it to templates: the content as text, the arguments of calls as objects."""
    kept = dict(message)
    if isinstance(message.get("content"), list):
        kept["content"] = text_of_parts(message["content"])
    if message.get("tool_calls"):
        kept["tool_calls"] = [_with_parsed_arguments(call) for call in message["tool_calls"]]
    return kept


def _with_parsed_arguments(call: JsonObject) -> JsonObject:
    function = call["function"]
    try:
        arguments = loads_exact(function["arguments"] or "{}")
    except ValueError:
        # Keep arguments that are not JSON, because the model should see what it wrote.
        return call
    return {**call, "function": {**function, "arguments": arguments}}
