"""One model call by a program, in any of the model APIs, and the conversation that the call contains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym.capture.exchange import Dialect
from nemo_gym.capture.streams import assembled
from nemo_gym.dialects import anthropic, anthropic_answers, chat_answers, chat_history
from nemo_gym.dialects.chat import new_id, split_responses_input_output_items
from nemo_gym.dialects.chat_parts import assistant_text
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.anthropic import MessageParam
from nemo_gym.schemas.items import EasyInputMessage, InputItem, OutputMessage, OutputText
from nemo_gym.schemas.responses import RESPONSES_PATH, Response, ResponseUsage

DIALECTS: dict[str, Dialect] = {
    RESPONSES_PATH: "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
"""The API dialect of each route of a model server."""

_ITEMS = TypeAdapter(list[InputItem])
_MESSAGES = TypeAdapter(list[MessageParam])


class Exchange(NamedTuple):
    """The request and the response of a model call, in the format of their API (`dialect`)."""

    dialect: Dialect
    request: JsonObject
    answer: JsonObject

    @classmethod
    def of(cls, path: str, request: bytes, answer: bytes, content_type: str) -> Exchange | None:
        """Parse a call. Return None if its request or answer is not a JSON object, or if a stream is incomplete."""
        dialect = DIALECTS[path]
        try:
            asked = orjson.loads(request)
            if content_type.startswith("text/event-stream"):
                stream = assembled(dialect, answer)
                answered = None if stream.error_category else stream.response
            else:
                answered = orjson.loads(answer)
        except orjson.JSONDecodeError:
            return None
        return cls(dialect, asked, answered) if isinstance(asked, dict) and isinstance(answered, dict) else None

    @property
    def usage(self) -> JsonObject | None:
        """The token counts of the call, under the field names of the Responses API."""
        given = self.answer.get("usage")
        if not isinstance(given, dict):
            return None
        match self.dialect:
            case "responses":
                return given
            case "chat":
                usage = chat_answers.usage_of_completion(given)
            case "messages":
                counts = given.get("input_tokens") or 0, given.get("output_tokens") or 0
                usage = ResponseUsage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=sum(counts))
        return usage.model_dump(mode="json") if usage else None

    @property
    def incomplete_details(self) -> JsonObject | None:
        """The reason why the model's answer is incomplete, as in the Responses API; None if it is complete."""
        match self.dialect:
            case "responses":
                details: JsonObject | None = self.answer.get("incomplete_details")
                return details
            case "chat":
                reasons, reason = chat_answers.INCOMPLETE_REASONS, self.answer["choices"][0].get("finish_reason")
            case "messages":
                reasons, reason = anthropic_answers.INCOMPLETE_REASONS, self.answer.get("stop_reason")
        return {"reason": reasons[reason]} if reason in reasons else None

    def response(self, usage: object) -> Response:
        """Return the conversation up to and including this answer as one response with this `usage`.

        The prompt, which is everything before the first assistant item, is left out. Raise `DataError` if the program
        sent something that the Responses API cannot express.
        """
        try:
            output, incomplete = split_responses_input_output_items(self._items())[1], self.incomplete_details
            return Response.model_validate(
                {
                    "id": str(self.answer.get("id") or new_id("resp")),
                    "created_at": self.answer.get("created_at") or self.answer.get("created") or 0,
                    "model": str(self.answer.get("model") or ""),
                    "output": [_plain(_as_answer(item)) for item in output],
                    "status": "incomplete" if incomplete else "completed",
                    "incomplete_details": incomplete,
                    "tools": self._tools(),
                    "usage": usage,
                }
            )
        except (ValidationError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"the program's last model call cannot be read: {error}") from error

    def _items(self) -> Sequence[InputItem]:
        match self.dialect:
            case "responses":
                asked = self.request.get("input")
                before = [EasyInputMessage(role="user", content=asked)] if isinstance(asked, str) else asked or []
                return _ITEMS.validate_python([*map(_plain, before), *self.answer["output"]])
            case "chat":
                messages = [*self.request["messages"], self.answer["choices"][0]["message"]]
                return chat_history.items_of_messages(messages, new_id=new_id, keeps_tokens=False)
            case "messages":
                said = {"role": "assistant", "content": self.answer["content"]}
                turns = _MESSAGES.validate_python([*self.request["messages"], said])
                return [item for turn in turns for item in anthropic.items_of_message(turn)]

    def _tools(self) -> list[JsonObject]:
        """Return the function tools that the program offered, in the format of the Responses API."""
        tools = []
        for tool in self.request.get("tools") or ():
            about = tool.get("function", tool)
            if isinstance(about.get("name"), str):
                parameters = about.get("parameters") or about.get("input_schema")
                described = {"name": about["name"], "description": about.get("description"), "parameters": parameters}
                tools.append({"type": "function", **described, "strict": about.get("strict")})
        return tools


def _as_answer(item: InputItem) -> InputItem | OutputMessage:
    """Convert an assistant's input message to an output message, because verifiers look for output messages."""
    if not isinstance(item, EasyInputMessage) or item.role != "assistant":
        return item
    text = item.content if isinstance(item.content, str) else assistant_text(item.content)
    return OutputMessage(id=new_id("msg"), content=[OutputText(text=text)])


def _plain(item: Any) -> Any:
    return item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else item


def task_text(params: JsonObject) -> str:
    """Return a task as text for a program: the instructions and every message, separated by blank lines."""
    texts = [params.get("instructions"), *map(_text_of, _contents(params))]
    return "\n\n".join(text for text in texts if text)


def types_without_text(params: JsonObject) -> list[str]:
    """Return the types of the message parts that `task_text` leaves out, such as `input_image`."""
    parts = (part for content in _contents(params) if isinstance(content, list) for part in content)
    found = {str(part.get("type")) for part in parts if isinstance(part, dict) and not _has_text(part)}
    return sorted(found - {"refusal"})


def _contents(params: JsonObject) -> list[object]:
    given = params.get("input") or []
    return [given] if isinstance(given, str) else [_plain(item).get("content") for item in given]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and _has_text(part))


def _has_text(part: JsonObject) -> bool:
    return isinstance(part.get("text"), str)
