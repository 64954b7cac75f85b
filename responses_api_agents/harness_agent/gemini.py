"""Gemini's API for programs: each `generateContent` is a call of the Responses API."""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from nemo_gym import DataError, NeMoGymResponse
from nemo_gym.dialects.calls import UNREADABLE_ARGUMENTS, input_of_call
from nemo_gym.harness import Translated
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact

ROUTE = re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)")
TOOL_CHOICES = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
OK, JSON = 200, "application/json"
STATUSES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED"}
"""Google's names of HTTP statuses. All others are `UNAVAILABLE`."""
SEAL = "nemo_gym:"
"""The beginning of a thought signature that contains the model's reasoning."""


class _Given(BaseModel):
    """A part of a request. As in Google's own clients, keys have camel case or underscores."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Blob(_Given):
    mime_type: str = ""
    data: str | None = None
    file_uri: str | None = None


class FunctionCall(_Given):
    id: str | None = None
    name: str
    args: dict[str, Any] | None = None


class FunctionResponse(_Given):
    id: str | None = None
    name: str
    response: dict[str, Any] | None = None
    parts: list[Part] = []


class Part(_Given):
    model_config = ConfigDict(extra="allow")

    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    inline_data: Blob | None = None
    file_data: Blob | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None


class Content(_Given):
    role: Literal["user", "model", "function"] = "user"
    parts: list[Part] = []


class FunctionDeclaration(_Given):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class Tool(_Given):
    model_config = ConfigDict(extra="allow")

    function_declarations: list[FunctionDeclaration] = []


class FunctionCallingConfig(_Given):
    mode: str = "AUTO"
    allowed_function_names: list[str] = []


class ToolConfig(_Given):
    function_calling_config: FunctionCallingConfig = FunctionCallingConfig()


class GenerationConfig(_Given):
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    candidate_count: int | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None


class GenerateContent(_Given):
    contents: list[Content]
    system_instruction: Content | None = None
    tools: list[Tool] = []
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig = GenerationConfig()


def translated(path: str, query: str, body: bytes) -> Translated | None:
    """Translate a call of Gemini's API. Return None for other paths. Raise `DataError` if it cannot be expressed."""
    found = ROUTE.fullmatch(path)
    if found is None:
        return None
    try:
        asked = GenerateContent.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from error
    is_streamed = found["method"] == "streamGenerateContent"

    def answered(status: int, answer: bytes) -> tuple[bytes, str]:
        try:
            given = loads_exact(answer)
            content = content_of(given) if status == OK else _error(status, given["error"]["message"])
        except (ValueError, LookupError, TypeError):
            # The gateway has recorded that the answer cannot be read.
            return answer, JSON
        if not is_streamed or status != OK:
            return dump_json(content), JSON
        if "alt=sse" in query.split("&"):
            return b"data: %b\r\n\r\n" % dump_json(content), "text/event-stream"
        return dump_json([content]), JSON

    return Translated(dump_json(request_of(asked, found["model"])), answered)


def _error(status: int, message: object) -> JsonObject:
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "UNAVAILABLE")}}


# From Gemini to Responses


def request_of(asked: GenerateContent, model: str) -> JsonObject:
    """Convert a request. Fields without an equivalent (`topK`, `stopSequences`, a thinking budget) are left out."""
    config = asked.generation_config
    if (config.candidate_count or 1) > 1:
        raise DataError(f"generationConfig.candidateCount is {config.candidate_count}, but a call has one answer")
    instructions = "\n\n".join(part.text for part in (asked.system_instruction or Content()).parts if part.text)
    fields: JsonObject = {
        "model": model,
        "input": list(_History().items(asked.contents)),
        "instructions": instructions or None,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_output_tokens": config.max_output_tokens,
        "tools": [_tool(each) for tool in asked.tools for each in _declared(tool)] or None,
        "tool_choice": _tool_choice(asked.tool_config.function_calling_config) if asked.tool_config else None,
        "text": _text(config),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _declared(tool: Tool) -> list[FunctionDeclaration]:
    if tool.model_extra:
        raise DataError(
            f"tool {next(iter(tool.model_extra))}: only functionDeclarations are supported, because Google runs it"
        )
    return tool.function_declarations


def _tool(declared: FunctionDeclaration) -> JsonObject:
    parameters = (
        declared.parameters_json_schema or _schema(declared.parameters) or {"type": "object", "properties": {}}
    )
    tool = {"type": "function", "name": declared.name, "parameters": parameters, "strict": False}
    return tool if declared.description is None else {**tool, "description": declared.description}


def _tool_choice(config: FunctionCallingConfig) -> object:
    if config.mode == "ANY" and len(config.allowed_function_names) == 1:
        return {"type": "function", "name": config.allowed_function_names[0]}
    return TOOL_CHOICES.get(config.mode, "auto")


def _text(config: GenerationConfig) -> object:
    schema = config.response_json_schema or _schema(config.response_schema)
    if schema:
        return {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
    return {"format": {"type": "json_object"}} if config.response_mime_type == "application/json" else None


def _schema(given: Any) -> Any:
    """Return a schema in the usual form. Gemini's own has names of types in capital letters."""
    if isinstance(given, dict):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _schema(value)
            for name, value in given.items()
        }
    return [_schema(each) for each in given] if isinstance(given, list) else given


class _History:
    """The conversation of a request. Calls without ids get the same ones in each request."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: deque[tuple[str, str]] = deque()
        """The id and the name of each call without an id that waits for its result."""

    def items(self, contents: Iterable[Content]) -> Iterator[JsonObject]:
        for content in contents:
            role = "assistant" if content.role == "model" else "user"
            shown: list[Part] = []
            # A thought is left out, because the signature of the next part has the reasoning itself.
            for part in (each for each in content.parts if not each.thought):
                reasoning = _opened(part.thought_signature)
                is_shown = part.text is not None or bool(part.inline_data or part.file_data)
                if reasoning or not is_shown:
                    yield from _message(role, shown)
                    shown = []
                yield from reasoning
                if is_shown:
                    shown.append(part)
                else:
                    yield self._of(part)
            yield from _message(role, shown)

    def _of(self, part: Part) -> JsonObject:
        if (call := part.function_call) is not None:
            call_id = call.id or f"call_{next(self._numbers)}"
            if call.id is None:
                self._open.append((call_id, call.name))
            arguments = _arguments(call.args or {})
            return {"type": "function_call", "call_id": call_id, "name": call.name, "arguments": arguments}
        if (result := part.function_response) is not None:
            call_id = result.id or self._id_of(result.name)
            return {"type": "function_call_output", "call_id": call_id, "output": _output(result)}
        kind = next(iter(part.model_extra or ()), "nothing in it")
        raise DataError(f"a part has {kind}, which the Responses API does not support")

    def _id_of(self, name: str) -> str:
        found = next((each for each in self._open if each[1] == name), None)
        if found is None:
            raise DataError(f"the functionResponse of {name} lacks an id, and does not follow a call of that name")
        self._open.remove(found)
        return found[0]


def _message(role: str, parts: Sequence[Part]) -> Iterator[JsonObject]:
    given = [_part(part, role) for part in parts if part.text != ""]
    if given:
        yield {"role": role, "content": given[0]["text"] if len(given) == 1 and "text" in given[0] else given}


def _part(part: Part, role: str) -> JsonObject:
    if part.text is not None:
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
    blob = part.inline_data or part.file_data
    assert blob is not None, "other parts are not parts of a message"
    url = blob.file_uri or f"data:{blob.mime_type};base64,{blob.data}"
    if blob.mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if blob.mime_type.startswith("audio/") and blob.data:
        return {
            "type": "input_audio",
            "input_audio": {"data": blob.data, "format": blob.mime_type.removeprefix("audio/")},
        }
    return {"type": "input_file", "file_url" if blob.file_uri else "file_data": url}


def _arguments(given: JsonObject) -> str:
    if list(given) == [UNREADABLE_ARGUMENTS]:
        return str(given[UNREADABLE_ARGUMENTS])
    # Write a space after each comma and colon, as models do, so that a model sees its call unchanged.
    return json.dumps(given, ensure_ascii=False)


def _output(result: FunctionResponse) -> str | list[JsonObject]:
    given = result.response or {}
    only = next(iter(given.values())) if len(given) == 1 and set(given) <= {"output", "result", "error"} else given
    text = only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
    if not result.parts:
        return text
    return [{"type": "input_text", "text": text}, *(_part(part, "user") for part in result.parts)]


# From Responses to Gemini


def content_of(answer: JsonObject) -> JsonObject:
    """Convert a response to the one candidate of an answer."""
    response = NeMoGymResponse.model_validate(answer)
    reason = response.incomplete_details.reason if response.incomplete_details else None
    finish = {None: "STOP", "content_filter": "SAFETY"}.get(reason, "MAX_TOKENS")
    candidate = {
        "content": {"role": "model", "parts": list(_parts(answer["output"]))},
        "finishReason": finish,
        "index": 0,
    }
    content: JsonObject = {"candidates": [candidate], "modelVersion": response.model, "responseId": response.id}
    if (usage := response.usage) is not None:
        thoughts = usage.output_tokens_details.reasoning_tokens or 0
        content["usageMetadata"] = {
            "promptTokenCount": usage.input_tokens,
            "cachedContentTokenCount": usage.input_tokens_details.cached_tokens or 0,
            "candidatesTokenCount": usage.output_tokens - thoughts,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": usage.total_tokens,
        }
    return content


def _parts(items: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yield the parts of an answer. Clients drop thoughts, but they return the signature of the part that follows."""
    seal: JsonObject = {}
    for item in items:
        match item["type"]:
            case "reasoning":
                text = "\n".join(each.get("text") or "" for each in item.get("summary") or item.get("content") or ())
                if text:
                    yield {"text": text, "thought": True}
                seal = _sealed(item)
            case "message":
                yield {
                    "text": "".join(each.get("text") or each.get("refusal") or "" for each in item["content"]),
                    **seal,
                }
                seal = {}
            case "function_call":
                call = {"id": item["call_id"], "name": item["name"], "args": input_of_call(item["arguments"])}
                yield {"functionCall": call, **seal}
                seal = {}
    if seal:
        yield {"text": "", **seal}


def _sealed(item: JsonObject) -> JsonObject:
    kept = {name: item[name] for name in ("id", "summary", "content", "encrypted_content") if item.get(name)}
    return {"thoughtSignature": base64.b64encode(SEAL.encode() + dump_json(kept)).decode()}


def _opened(signature: str) -> list[JsonObject]:
    """Return the reasoning in a signature of ours. Signatures of others, and placeholders of clients, have none."""
    try:
        text = base64.b64decode(signature, validate=True).decode()
        if text.startswith(SEAL):
            return [{"type": "reasoning", "summary": [], **loads_exact(text.removeprefix(SEAL))}]
    except ValueError:
        pass
    return []
