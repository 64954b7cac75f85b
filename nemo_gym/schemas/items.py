"""Items of Responses API requests and responses: messages, tool calls, reasoning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.base import TaggedModel, WireModel
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS, TokenIDLogProbMixin

Status = Literal["in_progress", "completed", "incomplete"]
Role = Literal["user", "assistant", "system", "developer"]


def _is_none(value: object) -> bool:
    return value is None


class InputText(TaggedModel):
    """Text for the model."""

    text: str
    type: Literal["input_text"] = "input_text"


class InputImage(TaggedModel):
    """An image for the model, by URL or file id."""

    type: Literal["input_image"] = "input_image"
    detail: Literal["low", "high", "auto", "original"] | None = "auto"
    image_url: str | None = None
    file_id: str | None = None


class InputFile(TaggedModel):
    """A file for the model, inline, by URL or by id."""

    type: Literal["input_file"] = "input_file"
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class InputAudio(TaggedModel):
    """Audio for the model: `input_audio` holds base64 `data` and a `format`."""

    type: Literal["input_audio"] = "input_audio"
    input_audio: JsonObject


class InputVideo(TaggedModel):
    """A video for the model; exactly one of `video_url` and `video` is set."""

    type: Literal["input_video"] = "input_video"
    video_url: object = None
    video: object = None

    @model_validator(mode="after")
    def _one_source(self) -> InputVideo:
        if (self.video_url is None) == (self.video is None):
            raise ValueError("an input_video part needs exactly one of 'video_url' and 'video'")
        return self


class OutputText(TaggedModel):
    """Text written by the model."""

    annotations: list[object] = Field(default_factory=list)
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[object] | None = None

    tags: ClassVar[tuple[str, ...]] = ("type", "annotations")


class OutputRefusal(TaggedModel):
    """The part of an output message that contains the model's refusal."""

    refusal: str
    type: Literal["refusal"] = "refusal"


InputPart = Annotated[
    InputText | InputImage | InputFile | InputAudio | InputVideo | OutputText | OutputRefusal,
    Field(discriminator="type"),
]
OutputPart = Annotated[OutputText | OutputRefusal, Field(discriminator="type")]


class EasyInputMessage(WireModel):
    """A message in short form: a role with a text or a list of parts."""

    content: str | list[InputPart]
    role: Role
    type: Literal["message"] = "message"
    phase: str | None = Field(default=None, exclude_if=_is_none)


class Message(WireModel):
    """A message in long form: a list of parts and a status."""

    content: list[InputPart]
    role: Literal["user", "system", "developer"]
    status: Status | None = None
    type: Literal["message"] = "message"
    phase: str | None = Field(default=None, exclude_if=_is_none)


class OutputMessage(TaggedModel):
    """A message from the assistant."""

    id: str
    content: list[OutputPart]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"
    phase: str | None = Field(default=None, exclude_if=_is_none)
    """`commentary` or `final_answer`, from endpoints that distinguish them."""

    tags: ClassVar[tuple[str, ...]] = ("type", "role", "status")

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, OutputText))


class FunctionToolCall(TaggedModel):
    """A tool call by the model; `arguments` is the JSON text that the model wrote."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: Status | None = None
    namespace: str | None = Field(default=None, exclude_if=_is_none)
    """The group of tools that contains the function. Only some endpoints and clients set it."""


class FunctionCallOutput(TaggedModel):
    """The output of the tool call with the same `call_id`."""

    call_id: str
    output: str | list[object]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class Summary(TaggedModel):
    """One paragraph of a summary of the model's reasoning."""

    text: str
    type: Literal["summary_text"] = "summary_text"


class ReasoningItem(TaggedModel):
    """The model's reasoning before its answer."""

    id: str
    summary: list[Summary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[object] | None = None

    @model_validator(mode="before")
    @classmethod
    def _ignore_status(cls, data: object) -> object:
        # Drop the status, because endpoints send it, but some reject it in requests.
        if isinstance(data, dict) and "status" in data:
            return {key: value for key, value in data.items() if key != "status"}
        return data

    @property
    def text(self) -> str:
        """The summary's paragraphs, joined by newlines."""
        return "\n".join(part.text for part in self.summary)


class HostedItem(WireModel):
    """An item of a type without a class of its own, such as a call of an endpoint's tool. It is kept unchanged."""

    type: str


class McpCall(HostedItem, TaggedModel):
    """A call of an MCP tool that the endpoint has made itself, with the tool's output."""

    type: Literal["mcp_call"] = "mcp_call"
    id: str
    arguments: str
    name: str
    server_label: str
    output: str | None = None
    error: object = None
    status: str | None = None
    approval_request_id: str | None = None


class EasyInputMessageForTraining(TokenIDLogProbMixin, EasyInputMessage):
    """A message in short form, with its token ids and log probabilities."""


class MessageForTraining(TokenIDLogProbMixin, Message):
    """A message in long form, with its token ids and log probabilities."""


class OutputMessageForTraining(TokenIDLogProbMixin, OutputMessage):
    """An assistant message with its token ids and log probabilities."""


class FunctionToolCallForTraining(TokenIDLogProbMixin, FunctionToolCall):
    """A tool call with its token ids and log probabilities."""


class ReasoningItemForTraining(TokenIDLogProbMixin, ReasoningItem):
    """A reasoning item with its token ids and log probabilities."""


RESPONSES_TO_TRAIN: dict[type[WireModel], type[WireModel]] = {
    EasyInputMessage: EasyInputMessageForTraining,
    Message: MessageForTraining,
    OutputMessage: OutputMessageForTraining,
    FunctionToolCall: FunctionToolCallForTraining,
    ReasoningItem: ReasoningItemForTraining,
}


def training_variant_of(cls: type[WireModel]) -> type[WireModel]:
    """Return the variant of an item class that has token fields. A class with token fields is its own variant."""
    return cls if issubclass(cls, TokenIDLogProbMixin) else RESPONSES_TO_TRAIN[cls]


MessageT = TypeVar("MessageT", EasyInputMessage, Message)
_TOKEN_FIELDS = frozenset(REQUIRED_TOKEN_METADATA_FIELDS)
_MCP_FIELDS = frozenset({"id", "arguments", "name", "server_label"})
_CALLS_AND_REASONING = frozenset({"function_call", "function_call_output", "reasoning"})


def _tag(item: object, *, type_is_required: bool) -> str | None:
    """Return an item's discriminator tag. For None, pydantic raises an error that lists the possible tags."""
    if not isinstance(item, dict):
        return next((_TAG_OF_CLASS[cls] for cls in type(item).__mro__ if cls in _TAG_OF_CLASS), None)
    kind = item.get("type", None if type_is_required else "message")
    if kind == "message":
        tag = _message_tag(item)
    elif not isinstance(kind, str):
        return None
    elif kind in _CALLS_AND_REASONING:
        tag = kind
    else:
        # An item with a role and content is a message with a misspelled type.
        if "role" in item and "content" in item:
            return None
        tag = "mcp_call" if kind == "mcp_call" and item.keys() >= _MCP_FIELDS else "hosted"
    carries_tokens = not _TOKEN_FIELDS.isdisjoint(item)
    return f"{tag}_tokens" if carries_tokens and tag != "function_call_output" else tag


def _message_tag(item: Mapping[str, object]) -> str:
    content = item.get("content")
    if item.get("role", "assistant") == "assistant" and "id" in item and isinstance(content, list):
        return "output_message"
    if "status" in item and isinstance(content, list) and item.get("role") != "assistant":
        return "message"
    return "easy_message"


def _input_tag(item: object) -> str | None:
    return _tag(item, type_is_required=False)


def _without_nulls(item: object) -> object:
    """Remove null fields of a message and its parts, because Parquet and `datasets` fill missing fields with null."""
    if not isinstance(item, dict) or item.get("type") not in (None, "message"):
        return item
    content = item.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and None in part.values() for part in content):
        item = {**item, "content": [_without_null_fields(part) for part in content]}
    return _without_null_fields(item)


def _without_null_fields(value: object) -> object:
    if not isinstance(value, dict) or None not in value.values():
        return value
    return {key: each for key, each in value.items() if each is not None}


def _output_tag(item: object) -> str | None:
    return _tag(item, type_is_required=True)


def _with_type(message: MessageT) -> MessageT:
    """Mark `type` as set, because requests are sent without unset fields and an output item requires its type."""
    message.__pydantic_fields_set__.add("type")
    return message


_OtherItem = (
    Annotated[OutputMessage, Tag("output_message")]
    | Annotated[FunctionToolCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[HostedItem, Tag("hosted")]
    | Annotated[McpCall, Tag("mcp_call")]
    | Annotated[OutputMessageForTraining, Tag("output_message_tokens")]
    | Annotated[FunctionToolCallForTraining, Tag("function_call_tokens")]
    | Annotated[ReasoningItemForTraining, Tag("reasoning_tokens")]
)
AnyItem = (
    Annotated[EasyInputMessage, Tag("easy_message")]
    | Annotated[Message, Tag("message")]
    | Annotated[EasyInputMessageForTraining, Tag("easy_message_tokens")]
    | Annotated[MessageForTraining, Tag("message_tokens")]
    | _OtherItem
)
_AnyOutput = (
    Annotated[EasyInputMessage, AfterValidator(_with_type), Tag("easy_message")]
    | Annotated[Message, AfterValidator(_with_type), Tag("message")]
    | Annotated[EasyInputMessageForTraining, AfterValidator(_with_type), Tag("easy_message_tokens")]
    | Annotated[MessageForTraining, AfterValidator(_with_type), Tag("message_tokens")]
    | _OtherItem
)
_TAG_OF_CLASS: dict[type, str] = {cls: tag.tag for cls, tag in map(get_args, get_args(AnyItem))}
InputItem = Annotated[AnyItem, Discriminator(_input_tag), BeforeValidator(_without_nulls)]
"""An item of a request; a message may omit its `type`."""
OutputItem = Annotated[_AnyOutput, Discriminator(_output_tag)]
"""An item of a response; its `type` is required."""


def assistant_texts(items: Iterable[object]) -> list[str]:
    """Return the text of each assistant message. Reasoning items do not count as messages."""
    return [text for item in items if (text := _assistant_text(item)) is not None]


def last_text(items: Iterable[object]) -> str:
    """Return the text of the last assistant message, or an empty string. Reasoning items do not count as messages."""
    return next((text for item in reversed(list(items)) if (text := _assistant_text(item)) is not None), "")


def _assistant_text(item: object) -> str | None:
    if isinstance(item, OutputMessage):
        return item.text
    # Some endpoints and agents omit the id of a message, which is then a message in short form.
    if not isinstance(item, EasyInputMessage) or item.role != "assistant":
        return None
    if isinstance(item.content, str):
        return item.content
    return "".join(part.text for part in item.content if isinstance(part, OutputText))
