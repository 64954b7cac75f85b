"""One model call by a program, in any of the model APIs, and the conversation that the call contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym.capture.exchange import DIALECTS, Dialect
from nemo_gym.capture.streams import assembled
from nemo_gym.dialects import anthropic, anthropic_answers, chat_answers, chat_history
from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_parts import assistant_text
from nemo_gym.errors import DataError
from nemo_gym.records.conversation import is_of_model, texts_of
from nemo_gym.records.usage import response_usage
from nemo_gym.schemas.anthropic import MessageParam
from nemo_gym.schemas.items import EasyInputMessage, InputItem, OutputMessage, OutputText
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.shapes import AnswerJson, Item, RequestJson, ToolDefinition

CANNOT_BE_READ = "the program's last model call cannot be read"
UNREADABLE = (ValidationError, LookupError, TypeError, AttributeError)
_ITEMS = TypeAdapter(list[InputItem])
_MESSAGES = TypeAdapter(list[MessageParam])


class Exchange(NamedTuple):
    """The request and the response of a model call, in the format of their API (`dialect`)."""

    dialect: Dialect
    request: RequestJson
    answer: AnswerJson

    @classmethod
    def of(cls, path: str, request: bytes, answer: bytes, content_type: str) -> Exchange | None:
        """Parse a call. Return None if its request or answer is not a JSON object, or if a stream is incomplete."""
        dialect = DIALECTS[path]
        try:
            asked: RequestJson = orjson.loads(request)
            answered: AnswerJson | None
            if content_type.startswith("text/event-stream"):
                stream = assembled(dialect, answer)
                answered = None if stream.error_category else stream.response
            else:
                answered = orjson.loads(answer)
        except orjson.JSONDecodeError:
            return None
        return cls(dialect, asked, answered) if isinstance(asked, dict) and isinstance(answered, dict) else None

    @property
    def usage(self) -> Mapping[str, object] | None:
        """The token counts of the call, under the field names of the Responses API."""
        given = self.answer.get("usage")
        if self.dialect == "responses":
            return given if isinstance(given, dict) else None
        usage = response_usage(given)
        return usage.model_dump(mode="json") if usage else None

    @property
    def incomplete_details(self) -> Mapping[str, object] | None:
        """The reason why the model's answer is incomplete, as in the Responses API; None if it is complete."""
        match self.dialect:
            case "responses":
                details: Mapping[str, object] | None = self.answer.get("incomplete_details")
                return details
            case "chat":
                reasons, reason = chat_answers.INCOMPLETE_REASONS, self.answer["choices"][0].get("finish_reason")
            case "messages":
                reasons, reason = anthropic_answers.INCOMPLETE_REASONS, self.answer.get("stop_reason")
        return {"reason": reasons[reason]} if reason in reasons else None

    def response(self, usage: object, output: Sequence[Item] | None = None) -> Response:
        """Return this answer as a response with this `usage` and `output`.

        The default output is the conversation as the program sent it, without its prompt, and this answer. Raise
        `DataError` if the Responses API cannot express it.
        """
        try:
            incomplete = self.incomplete_details
            return Response.model_validate(
                {
                    "id": str(self.answer.get("id") or new_id("resp")),
                    "created_at": self.answer.get("created_at") or self.answer.get("created") or 0,
                    "model": str(self.answer.get("model") or ""),
                    "output": self._as_sent() if output is None else output,
                    "status": "incomplete" if incomplete else "completed",
                    "incomplete_details": incomplete,
                    "tools": self.tools,
                    "usage": usage,
                }
            )
        except UNREADABLE as error:
            raise DataError(f"{CANNOT_BE_READ}: {error}") from error

    def said(self) -> list[Item]:
        """Return the items of the answer. Raise `DataError` if the Responses API cannot express them."""
        match self.dialect:
            case "responses":
                said = self.answer.get("output") or []
            case "chat":
                said = [choice.get("message") for choice in self.answer.get("choices") or ()][:1]
            case "messages":
                said = [{"role": "assistant", "content": self.answer.get("content")}]
        return [item for message in said for item in items_of(self.dialect, message)]

    @property
    def messages(self) -> list[object]:
        """The messages of the request, in the format of the API."""
        given = (self.request.get("input") if self.dialect == "responses" else self.request.get("messages")) or []
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    def _as_sent(self) -> list[Item]:
        asked = [item for message in self.messages for item in items_of(self.dialect, message)]
        prompt = next((at for at, item in enumerate(asked) if is_of_model(item)), len(asked))
        return [*asked[prompt:], *self.said()]

    @property
    def instructions(self) -> str:
        """The system prompt, if the API has it outside of the messages."""
        given = self.request.get("instructions") or self.request.get("system") or ""
        return given if isinstance(given, str) else orjson.dumps(given).decode()

    @property
    def tools(self) -> list[ToolDefinition]:
        """The function tools that the program offered, in the format of the Responses API."""
        tools: list[ToolDefinition] = []
        given = self.request.get("tools")
        for tool in given if isinstance(given, list) else ():
            about = tool.get("function", tool)
            if isinstance(about.get("name"), str):
                parameters = about.get("parameters") or about.get("input_schema")
                described: ToolDefinition = {"description": about.get("description"), "parameters": parameters}
                tools.append({"type": "function", "name": about["name"], **described, "strict": about.get("strict")})
        return tools


def items_of(dialect: Dialect, message: object) -> list[Item]:
    """Return the items of a message of a request or an answer. Raise `DataError` if they cannot be expressed."""
    given: Any = [message]
    try:
        match dialect:
            case "responses":
                items = _ITEMS.validate_python(given)
            case "chat":
                items = chat_history.items_of_messages(given, new_id=new_id, keeps_tokens=False)
            case "messages":
                items = [
                    item for turn in _MESSAGES.validate_python(given) for item in anthropic.items_of_message(turn)
                ]
        return [_as_output(item) for item in items]
    except UNREADABLE as error:
        raise DataError(f"{CANNOT_BE_READ}: {error}") from error


def _as_output(item: InputItem) -> Any:
    """Return an item of a request as one of a response.

    Convert an assistant's input message to an output message, because verifiers look for output messages.
    """
    if isinstance(item, EasyInputMessage) and item.role == "assistant":
        text = item.content if isinstance(item.content, str) else assistant_text(item.content)
        item = OutputMessage(id=new_id("msg"), content=[OutputText(text=text)])
    # A message of a request may omit its type, but items of a response require it.
    return {"type": item.type, **item.model_dump(mode="json", exclude_unset=True)}


def task_text(params: RequestJson) -> str:
    """Return a task as text for a program: the instructions and every message, separated by blank lines."""
    texts = [params.get("instructions"), *("\n".join(texts_of(content)) for content in _contents(params))]
    return "\n\n".join(text for text in texts if text)


def types_without_text(params: RequestJson) -> list[str]:
    """Return the types of the message parts that `task_text` leaves out, such as `input_image`."""
    given = (part for content in _contents(params) if isinstance(content, list) for part in content)
    parts = [part for part in given if isinstance(part, dict) and not isinstance(part.get("text"), str)]
    return sorted({str(part.get("type")) for part in parts} - {"refusal"})


def _contents(params: RequestJson) -> list[object]:
    given = params.get("input") or []
    items = (each.model_dump(exclude_unset=True) if isinstance(each, BaseModel) else each for each in given)
    return [given] if isinstance(given, str) else [item.get("content") for item in items]
