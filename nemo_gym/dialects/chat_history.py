"""Convert requests from Chat Completions to Responses: messages to items, parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nemo_gym.dialects.chat_answers import NewId, items_of_message
from nemo_gym.dialects.chat_parts import input_parts
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.items import EasyInputMessage, FunctionCallOutput, InputItem
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.shapes import MessageJson, ToolDefinition

SAME_NAME = ("metadata", "model", "parallel_tool_calls", "service_tier", "store", "temperature", "top_p", "user")


def response_params(params: ChatCompletionCreateParams, *, new_id: NewId, keeps_tokens: bool) -> ResponseCreateParams:
    """Convert a request to Responses. Fields without an equivalent (`stop`, `seed`, `n`, penalties) are left out."""
    fields: JsonObject = {name: getattr(params, name) for name in SAME_NAME if name in params.model_fields_set}
    fields["input"] = items_of_messages(params.messages, new_id=new_id, keeps_tokens=keeps_tokens)
    fields["max_output_tokens"] = params.max_completion_tokens or params.max_tokens
    fields["top_logprobs"] = params.top_logprobs
    fields["reasoning"] = {"effort": params.reasoning_effort} if params.reasoning_effort else None
    fields["text"] = _text(params)
    fields["tools"] = [_tool(tool) for tool in params.tools] if params.tools else None
    choice = params.tool_choice
    if isinstance(choice, dict) and "function" in choice:
        choice = {"type": "function", "name": choice["function"]["name"]}
    elif isinstance(choice, dict) and isinstance(allowed := choice.get("allowed_tools"), dict):
        tools = [{"type": "function", "name": tool["function"]["name"]} for tool in allowed.get("tools") or []]
        choice = {"type": "allowed_tools", "mode": allowed.get("mode") or "auto", "tools": tools}
    fields["tool_choice"] = choice
    return ResponseCreateParams(**{name: value for name, value in fields.items() if value is not None})


def _text(params: ChatCompletionCreateParams) -> Mapping[str, object] | None:
    text: dict[str, object] = {"verbosity": params.verbosity} if params.verbosity else {}
    form = params.response_format or {}
    if form.get("type") == "json_schema":
        text["format"] = {"type": "json_schema", **form["json_schema"]}
    elif form:
        text["format"] = form
    return text or None


def _tool(tool: ToolDefinition) -> Mapping[str, object]:
    if tool.get("type") != "function":
        raise DataError(f"a chat tool of type {tool.get('type')!r} is not supported by the Responses API")
    return {"type": "function", "parameters": None, "strict": None, **tool["function"]}


def items_of_messages(messages: Iterable[MessageJson], *, new_id: NewId, keeps_tokens: bool) -> list[InputItem]:
    """Convert a conversation to items. An assistant's message may become several items."""
    items: list[InputItem] = []
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            items += items_of_message(message, new_id=new_id, keeps_tokens=keeps_tokens)
        elif role == "tool":
            output = input_parts(message.get("content"))
            plain = output if isinstance(output, str) else [part.model_dump(exclude_unset=True) for part in output]
            items.append(FunctionCallOutput(call_id=message["tool_call_id"], output=plain))
        elif role in {"user", "system", "developer"}:
            items.append(EasyInputMessage(role=role, content=input_parts(message.get("content"))))
        else:
            raise DataError(f"a chat message of role {role!r} is not supported by the Responses API")
    return items
