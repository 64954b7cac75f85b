"""Request and response of the Anthropic Messages API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.base import TaggedModel, WireModel

StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class TextBlock(TaggedModel):
    """Text written by the user or the model."""

    text: str
    type: Literal["text"] = "text"


class Source(WireModel):
    """The source of an image or a document; `type` selects `data` (inline), `url` or `file_id`."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None


class ImageBlock(TaggedModel):
    """An image for the model."""

    source: Source
    type: Literal["image"] = "image"


class DocumentBlock(TaggedModel):
    """A document for the model."""

    source: Source
    title: str | None = None
    type: Literal["document"] = "document"


class ThinkingBlock(TaggedModel):
    """The model's reasoning; clients send the opaque `signature` back unchanged."""

    thinking: str
    signature: str = ""
    type: Literal["thinking"] = "thinking"


class RedactedThinkingBlock(TaggedModel):
    """Encrypted reasoning; clients send `data` back unchanged."""

    data: str
    type: Literal["redacted_thinking"] = "redacted_thinking"


class ToolUseBlock(TaggedModel):
    """A tool call by the model."""

    id: str
    name: str
    input: JsonObject
    type: Literal["tool_use"] = "tool_use"


class ToolResultBlock(TaggedModel):
    """The output of the tool call whose `id` is `tool_use_id`."""

    tool_use_id: str
    content: str | list[ContentBlock] | None = None
    is_error: bool | None = None
    type: Literal["tool_result"] = "tool_result"


class OtherBlock(WireModel):
    """A block of any other type, kept unchanged."""

    type: str


_KNOWN_TYPES = ("text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result")


def _block_tag(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return kind if kind in _KNOWN_TYPES else "other"


ContentBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(_block_tag),
]
"""A content block of a request."""
AnswerBlock = Annotated[TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, Field(discriminator="type")]
"""A content block of a response."""


class MessageParam(BaseModel):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class ToolParam(BaseModel):
    """A tool of a request; `input_schema` is a JSON Schema, absent for Anthropic's server-side tools."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: JsonObject | None = None
    strict: bool | None = None


class ToolChoice(BaseModel):
    """Whether the model may, must or must not call a tool; `name` is the tool that it must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(BaseModel):
    """The requested output format: `format` is `{type: json_schema, schema}`."""

    format: JsonObject | None = None


class AnthropicCreateParams(BaseModel):
    """The body of a Messages request; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    messages: list[MessageParam]
    model: str | None = None
    max_tokens: int | None = None
    output_config: OutputConfig | None = None
    stream: bool | None = None
    system: str | list[TextBlock] | None = None
    temperature: float | None = None
    tool_choice: ToolChoice | None = None
    tools: list[ToolParam] | None = None
    top_p: float | None = None


class AnthropicUsage(WireModel):
    """Token counts of one call; `input_tokens` excludes cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class AnthropicMessage(WireModel):
    """The body of a Messages response."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage = Field(default_factory=AnthropicUsage)


class AnthropicErrorDetail(BaseModel):
    """The error in the body of an error response."""

    type: str
    message: str


class AnthropicError(BaseModel):
    """The body of an error response."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail
