"""Request and response of the Chat Completions API."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, Required

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Tag

# Do not import `TypedDict` from `typing`, because server folders use these types in their own pydantic models.
# Before Python 3.12, pydantic supports only the one from `typing_extensions`.
from typing_extensions import TypedDict

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.base import TaggedModel, WireModel
from nemo_gym.schemas.shapes import ANY_KEYS, MessageJson, ToolDefinition
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS


class ContentPartText(TypedDict):
    """A text part of a message."""

    type: Literal["text"]
    text: str


class FunctionCallParam(TypedDict):
    """The function of a tool call: `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallParam(TypedDict):
    """A tool call in a message of a request."""

    id: str
    type: Literal["function"]
    function: FunctionCallParam


class FunctionDefinition(TypedDict, total=False):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: Required[str]
    description: str
    parameters: JsonObject
    strict: bool | None


class FunctionToolParam(TypedDict):
    """A function tool in the `tools` of a request."""

    type: Literal["function"]
    function: FunctionDefinition


class SystemMessageParam(TypedDict):
    """A system message. `content` is text or a list of parts."""

    role: Literal["system"]
    content: str | list[JsonObject]
    name: NotRequired[str]


class DeveloperMessageParam(TypedDict):
    """A developer message, the newer name of a system message."""

    role: Literal["developer"]
    content: str | list[JsonObject]
    name: NotRequired[str]


class UserMessageParam(TypedDict):
    """A user message. `content` is text or a list of parts, such as images."""

    role: Literal["user"]
    content: str | list[JsonObject]
    name: NotRequired[str]


class AssistantMessageParam(TypedDict, total=False):
    """An assistant message of a request."""

    role: Required[Literal["assistant"]]
    content: str | list[JsonObject] | None
    name: str
    refusal: str | None
    tool_calls: list[ToolCallParam]
    reasoning_content: str | None
    reasoning: str | None


class AssistantMessageForTrainingParam(AssistantMessageParam, total=False):
    """An assistant message of a request, with its token ids and log probabilities."""

    prompt_token_ids: Required[list[int]]
    generation_token_ids: Required[list[int]]
    generation_log_probs: Required[list[float]]
    routed_experts: object


class ToolMessageParam(TypedDict):
    """The output of a tool call."""

    role: Literal["tool"]
    content: str | list[JsonObject]
    tool_call_id: str


MessageParam = (
    AssistantMessageForTrainingParam
    | AssistantMessageParam
    | SystemMessageParam
    | DeveloperMessageParam
    | UserMessageParam
    | ToolMessageParam
)
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _checked_message(message: MessageJson) -> MessageJson:
    role = message.get("role")
    if role not in ROLES:
        raise ValueError(f"a message's 'role' must be one of {', '.join(ROLES)}, but is {role!r}")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise ValueError("a message with the role 'tool' needs a 'tool_call_id'")
    missing = [field for field in REQUIRED_TOKEN_METADATA_FIELDS if field not in message]
    if 0 < len(missing) < len(REQUIRED_TOKEN_METADATA_FIELDS):
        raise ValueError(f"a message with tokens needs all token fields; missing: {', '.join(missing)}")
    return message


class ChatCompletionCreateParams(BaseModel):
    """The body of a Chat Completions request; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    messages: list[Annotated[MessageJson, ANY_KEYS, AfterValidator(_checked_message)]]
    """Items of type `MessageParam`, with any extra fields kept."""
    model: str | None = None
    audio: JsonObject | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    moderation: JsonObject | None = None
    n: int | None = None
    output_config: JsonObject | None = None
    """Claude's settings of the answer, such as `{effort: low}`, at endpoints that accept them."""
    parallel_tool_calls: bool | None = True
    prediction: JsonObject | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    response_format: JsonObject | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    temperature: float | None = None
    thinking: JsonObject | None = None
    """Claude's reasoning budget, such as `{type: enabled, budget_tokens: 1024}`, at endpoints that accept it."""
    tool_choice: str | JsonObject | None = None
    tools: list[Annotated[ToolDefinition, ANY_KEYS]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: JsonObject | None = None


class Function(WireModel):
    """The function of a tool call; `arguments` is the JSON text from the model."""

    arguments: str
    name: str


class MessageToolCall(TaggedModel):
    """A tool call in a message of a response."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class ChatMessage(WireModel):
    """The assistant's message in a response."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    annotations: list[object] | None = None


class ChatMessageForTraining(ChatMessage):
    """An assistant message of a response, with its token ids and log probabilities."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: object = None
    sampling_spans: list[JsonObject] | None = None


def _carries_tokens(message: object) -> str:
    if isinstance(message, dict):
        return "tokens" if any(field in message for field in REQUIRED_TOKEN_METADATA_FIELDS) else "plain"
    return "tokens" if isinstance(message, ChatMessageForTraining) else "plain"


AnyChatMessage = Annotated[
    Annotated[ChatMessageForTraining, Tag("tokens")] | Annotated[ChatMessage, Tag("plain")],
    Discriminator(_carries_tokens),
]
"""A message with or without tokens. A message with only some of the token fields is rejected."""


class Choice(WireModel):
    """One alternative of a response."""

    finish_reason: str
    index: int
    message: AnyChatMessage
    logprobs: object = None


class CompletionUsage(WireModel):
    """Token counts of one call."""

    completion_tokens: int = 0
    prompt_tokens: int = 0
    total_tokens: int = 0


class ChatCompletion(WireModel):
    """The body of a Chat Completions response."""

    id: str
    choices: list[Choice]
    created: int
    model: str
    object: Literal["chat.completion"] = "chat.completion"
    usage: CompletionUsage | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
