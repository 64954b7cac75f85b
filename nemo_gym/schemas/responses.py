"""Request and response of the Responses API."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.base import WireModel
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionToolCall,
    InputItem,
    OutputItem,
    assistant_texts,
    last_text,
)
from nemo_gym.schemas.shapes import ANY_KEYS, ToolDefinition
from nemo_gym.schemas.thinking import strip_reasoning

RESPONSES_PATH = "/v1/responses"
MODEL_PATHS = (RESPONSES_PATH, "/v1/chat/completions", "/v1/messages")
"""The routes of model servers. Agents have only `RESPONSES_PATH`."""
PLAYED_WITHOUT_MODEL = "resp_test"
"""The id of responses that `nemo_gym.testing` makes, for example when an oracle plays the example rollouts."""


def _checked_tool(tool: ToolDefinition) -> ToolDefinition:
    if not isinstance(tool.get("type"), str):
        raise ValueError("a tool needs a 'type', such as \"function\"")
    if tool["type"] == "function" and not isinstance(tool.get("name"), str):
        raise ValueError("a function tool needs a 'name'")
    return tool


ToolParam = Annotated[ToolDefinition, ANY_KEYS, AfterValidator(_checked_tool)]


class ResponseCreateParams(BaseModel):
    """The body of a Responses request: the conversation so far, the tools and the sampling parameters.

    Unknown fields are rejected; `stream` may only be false.
    """

    model_config = ConfigDict(extra="forbid")

    input: str | list[InputItem]
    background: bool | None = None
    context_management: list[JsonObject] | None = None
    conversation: str | JsonObject | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    prompt: JsonObject | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: JsonObject | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: Literal[False] | None = None
    stream_options: JsonObject | None = None
    temperature: float | None = None
    text: JsonObject | None = None
    # Treat null as the default, because rows from other tools may contain null in unused fields.
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | JsonObject, BeforeValidator(lambda value: value or "auto")
    ] = "auto"
    tools: Annotated[list[ToolParam], BeforeValidator(lambda value: [] if value is None else value)] = Field(
        default_factory=list
    )
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None

    @property
    def input_items(self) -> list[InputItem]:
        """The conversation as items; a bare string is one user message."""
        return [EasyInputMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input


class InputTokensDetails(WireModel):
    """A breakdown of the input tokens."""

    cached_tokens: int | None = None
    """The number of cached input tokens; None if the endpoint did not report it."""


class OutputTokensDetails(WireModel):
    """A breakdown of the output tokens."""

    reasoning_tokens: int | None = None
    """The number of reasoning tokens; None if the endpoint did not report it."""


class ResponseUsage(WireModel):
    """The token counts of one call, or their sums over several calls."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = Field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = Field(default_factory=OutputTokensDetails)
    total_tokens: int = 0

    @classmethod
    def sum_from_list(cls, usages: Iterable[Self | None]) -> Self | None:
        """Return the sum of all usages, or None if all are None."""
        nothing: Self | None = None
        return reduce(accumulate_response_usage, usages, nothing)


UsageT = TypeVar("UsageT", bound=ResponseUsage)


def accumulate_response_usage(total: UsageT | None, additional: UsageT | None) -> UsageT | None:
    """Return the sum of two usages without changing them; None counts as zero.

    Counts in extra fields are added too. A count that is None on both sides stays None.
    """
    if total is None or additional is None:
        return additional if total is None else total
    return type(total).model_validate(sum_of_counts(total.model_dump(), additional.model_dump()))


def sum_of_counts(left: object, right: object) -> object:
    """Return the sum of two usages in JSON form; None counts as zero."""
    if left is None:
        return right
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: sum_of_counts(left.get(key), right.get(key)) for key in {**left, **right}}
    return left + right if isinstance(left, (int, float)) and isinstance(right, (int, float)) else left


class IncompleteDetails(WireModel):
    """The reason why a response is incomplete."""

    reason: str | None = None


def _by_attribute(value: object) -> object:
    return WireModel.model_validate(value) if isinstance(value, dict) else value


def _of_any_model(value: object) -> object:
    if isinstance(value, list):
        return [_of_any_model(each) for each in value]
    return value.model_dump() if isinstance(value, BaseModel) and not isinstance(value, WireModel) else value


FromAnyModel = BeforeValidator(_of_any_model)
"""A validator that also accepts other pydantic models, such as objects of the `openai` package."""
Settings = Annotated[Any, BeforeValidator(_by_attribute)]
"""Request settings that a response repeats. Their fields are attributes, as in `response.reasoning.effort`."""


class Response(WireModel):
    """The response of a model server or an agent: all messages and tool calls, in order."""

    id: str
    created_at: float
    model: str
    object: Literal["response"] = "response"
    output: list[OutputItem]
    parallel_tool_calls: bool = True
    tool_choice: Any = "auto"
    tools: Annotated[list[WireModel], FromAnyModel] = Field(default_factory=list)
    error: Annotated[WireModel | None, FromAnyModel] = None
    incomplete_details: Annotated[IncompleteDetails | None, FromAnyModel] = None
    instructions: str | list[Any] | None = None
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    background: bool | None = None
    conversation: Any = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: Any = None
    prompt_cache_key: str | None = None
    reasoning: Settings = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: str | None = None
    text: Settings = None
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: ResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """The texts of all assistant messages, joined."""
        return "".join(assistant_texts(self.output))

    @property
    def last_text(self) -> str:
        """The text of the last assistant message, or an empty string. Reasoning items are not messages."""
        return last_text(self.output)

    @property
    def answer_text(self) -> str:
        """The text of the last assistant message without `<think>…</think>`, for verifiers."""
        return strip_reasoning(self.last_text)

    @property
    def tool_calls(self) -> list[FunctionToolCall]:
        """Every tool call, in order."""
        return [item for item in self.output if isinstance(item, FunctionToolCall)]
