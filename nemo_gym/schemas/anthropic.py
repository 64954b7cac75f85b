"""A request and an answer of the Anthropic Messages API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from nemo_gym.schemas.base import TaggedModel, WireModel

StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class TextBlock(TaggedModel):
    """Text, of either side."""

    text: str
    type: Literal["text"] = "text"


class Source(WireModel):
    """Where an image or a document comes from: `data` inline, `url` or `file_id`, as `type` says."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None


class ImageBlock(TaggedModel):
    """An image given to the model."""

    source: Source
    type: Literal["image"] = "image"


class DocumentBlock(TaggedModel):
    """A document given to the model."""

    source: Source
    title: str | None = None
    type: Literal["document"] = "document"


class ThinkingBlock(TaggedModel):
    """What the model thought; the client sends `signature` back as it came, and does not look into it."""

    thinking: str
    signature: str = ""
    type: Literal["thinking"] = "thinking"


class RedactedThinkingBlock(TaggedModel):
    """Thoughts that the client cannot read; it sends `data` back as it came."""

    data: str
    type: Literal["redacted_thinking"] = "redacted_thinking"


class ToolUseBlock(TaggedModel):
    """The model's wish to call a tool."""

    id: str
    name: str
    input: dict[str, Any]
    type: Literal["tool_use"] = "tool_use"


class ToolResultBlock(TaggedModel):
    """What the tool answered to the call whose `id` is `tool_use_id`."""

    tool_use_id: str
    content: str | list[ContentBlock] | None = None
    is_error: bool | None = None
    type: Literal["tool_result"] = "tool_result"


class OtherBlock(WireModel):
    """A block of any other type, kept as it came."""

    type: str


_KNOWN_TYPES = frozenset(
    {"text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"}
)  # fmt: skip


def _block_tag(block: Any) -> str:
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
"""A block of a request."""
AnswerBlock = Annotated[TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, Field(discriminator="type")]
"""A block of an answer."""


class MessageParam(BaseModel):
    """One turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class ToolParam(BaseModel):
    """A tool of a request; `input_schema` is a JSON Schema, which tools that run at Anthropic do not have."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(BaseModel):
    """Whether the model may, must or must not call a tool; `name` is that of the one it must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(BaseModel):
    """How the answer is to look: `format` is `{type: json_schema, schema}`."""

    format: dict[str, Any] | None = None


class AnthropicCreateParams(BaseModel):
    """What a model server is asked, in Messages form; unknown fields are ignored."""

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
    """Token counts of one call; `input_tokens` are those that were in no cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class AnthropicMessage(WireModel):
    """What a model server answers, in Messages form."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage = Field(default_factory=AnthropicUsage)


class AnthropicErrorDetail(BaseModel):
    """The kind of an error and what to do about it."""

    type: str
    message: str


class AnthropicError(BaseModel):
    """What is answered in place of a message."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail
