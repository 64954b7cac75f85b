"""The conversation of a rollout as chat messages, split into prompt and completion."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from nemo_gym.config.explain import problems_by_key
from nemo_gym.dialects.chat_requests import chat_params, messages_of_items
from nemo_gym.errors import DataError
from nemo_gym.jsonl import loads_exact
from nemo_gym.records.conversation import is_of_model
from nemo_gym.schemas.items import InputItem, OutputItem
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import AnswerJson, MessageJson, RequestJson, ToolCall, ToolDefinition

_OUTPUT: TypeAdapter[list[OutputItem]] = TypeAdapter(list[OutputItem])
_PROMPT_FIELDS = ("input", "instructions", "tools", "parallel_tool_calls")
_ANSWERS = ("content", "refusal", "tool_calls")


class Unusable(DataError):
    """The error for a rollout that is unusable for training. Rollouts are counted by its message, a short reason."""


@dataclass(frozen=True)
class Conversation:
    """A rollout's chat messages, split before the policy's first message."""

    prompt: list[MessageJson]
    completion: list[MessageJson]
    """The messages from the policy's first to its last, with tool results and user messages between them.

    With `is_whole`, it continues to the last message of the conversation, and its messages have token ids."""
    tools: list[ToolDefinition]
    parallel_tool_calls: bool | None = None
    """The row's `parallel_tool_calls`, or None if the row does not set it."""
    row: Row | None = None
    """The row of the rollout. It is None unless `is_whole`, because a row may have megabytes of token ids."""


def conversation_of(
    row: Row, *, keeps_reasoning: bool, arguments_as_text: bool, is_whole: bool = False
) -> Conversation:
    """Return the conversation of a scored rollout.

    Arguments of tool calls are JSON objects or, with `arguments_as_text`, the text that the policy wrote. With
    `is_whole`, token ids are kept, and also the messages after the policy's last one.

    Raise `Unusable` if the rollout has no complete answer or cannot be expressed as chat messages. Raise `DataError`
    if the row is not a rollout.
    """
    params, response = row.params, row.response
    if params is None or response is None:
        missing = "responses_create_params" if params is None else "response"
        raise DataError(f"not a rollout: '{missing}' is missing. Pass the output of a collection.")
    if response.get("incomplete_details") or response.get("status") not in (None, "completed"):
        raise Unusable("incomplete answer")
    request, output = _parsed(params, response)
    said_at = [at for at, item in enumerate(response["output"]) if is_of_model(item)]
    if not said_at:
        raise Unusable("no answer")
    first, last = said_at[0], said_at[-1]
    # The prompt includes the output before the policy's first item, because an agent may begin with a message that is
    # not in the row, such as a game's first observation.
    request.input = [*request.input_items, *output[:first]]
    keeps = {"keeps_reasoning": keeps_reasoning, "keeps_tokens": is_whole}
    try:
        asked = chat_params(request, keeps_reasoning=keeps_reasoning, keeps_tokens=is_whole)
        said = messages_of_items(output[first : last + 1], **keeps)
        after = messages_of_items(output[last + 1 :], **keeps) if is_whole else []
    except DataError as error:
        raise Unusable(f"unsupported: {error}") from error
    if not said or not any(said[-1].get(name) for name in _ANSWERS):
        raise Unusable("no answer")
    return Conversation(
        prompt=[_plain(message, arguments_as_text) for message in asked.messages],
        completion=[_plain(message, arguments_as_text) for message in said + after],
        tools=asked.tools or [],
        parallel_tool_calls=params.get("parallel_tool_calls"),
        row=row if is_whole else None,
    )


def _parsed(params: RequestJson, response: AnswerJson) -> tuple[ResponseCreateParams, list[InputItem]]:
    fields = {name: given for name in _PROMPT_FIELDS if (given := params.get(name)) is not None}
    # If a row lists no tools, the agent used those of the resources server, and the response lists them.
    fields["tools"] = fields.get("tools") or response.get("tools")
    place = "responses_create_params"
    try:
        request = ResponseCreateParams.model_validate(fields)
        place = "response.output"
        return request, _OUTPUT.validate_python(response.get("output"))
    except ValidationError as error:
        key, problem = next(iter(problems_by_key(error).items()))
        raise DataError(f"{place}{f'.{key}' if key else ''}: {problem}") from error


def _plain(message: MessageJson, arguments_as_text: bool) -> MessageJson:
    """Return a message with its text parts joined into one string, because most chat templates expect a string.

    Unless `arguments_as_text`, also turn a refusal into content, and the arguments of tool calls into objects.
    """
    content = message.get("content")
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        message = {**message, "content": "\n".join(part["text"] for part in content)}
    if arguments_as_text:
        return message
    if "refusal" in message:
        # Move the refusal to the content, because chat templates do not render a refusal.
        message = {**message, "content": message["content"] or message["refusal"]}
        del message["refusal"]
    if "tool_calls" in message:
        message = {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
    return message


def _with_object(call: ToolCall) -> ToolCall:
    function = call["function"]
    try:
        arguments = loads_exact(function["arguments"] or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise Unusable("tool call with invalid arguments")
    return {**call, "function": {**function, "arguments": arguments}}
