"""Our models accept every value that the OpenAI SDK's types allow, and keep all of it."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types import responses
from openai.types.chat import ChatCompletion as TheirCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import get_type_hints, is_typeddict

from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams
from nemo_gym.schemas.responses import Response, ResponseCreateParams
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS
from tests.each_case import each_case

MODERATELY = settings(
    max_examples=120, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
DEEPEST = 4
"""Below this depth only required fields are generated."""

# Our types follow the published package: chat messages have no custom tool calls, reasoning items lose their status,
# tool outputs need a call id, and a message without a type gets one.
NOT_OURS: dict[str, frozenset[str]] = {
    "ChatCompletionMessageCustomToolCall": frozenset({"*"}),
    "ResponseReasoningItem": frozenset({"status"}),
    "ResponseReasoningItemParam": frozenset({"status"}),
    "ItemReference": frozenset({"*"}),
    "ResponseCreateParamsNonStreaming": frozenset({"access_programs", "image", "moderation", "prompt_cache_options"}),
    "CompletionCreateParamsNonStreaming": frozenset(
        {"function_call", "functions", "prompt_cache_options", "prompt_cache_retention"}
    ),
}
DROPPED_IF_NULL = frozenset({"phase", "namespace"})
ALWAYS: dict[str, dict[str, Any]] = {
    "ResponseFunctionToolCallOutputItem": {"call_id": str},
    "FunctionCallOutput": {"call_id": str},
    "EasyInputMessageParam": {"type": Literal["message"]},
    "Message": {"type": Literal["message"]},
}

PLAIN = {
    str: st.text("abc é", max_size=4),
    bool: st.booleans(),
    int: st.integers(0, 99),
    float: st.floats(0, 4, width=16),
    type(None): st.none(),
    None: st.none(),
    object: st.one_of(st.none(), st.text("ab", max_size=2), st.integers(0, 9)),
    Any: st.none(),
}


def values_of(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy for JSON values that match a type of the SDK."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return values_of(arguments[0], depth)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each, depth) for each in arguments if not is_left_out(each)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(st.text("ab", max_size=2), later(arguments[1], depth), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return st.lists(later(arguments[0], depth), max_size=2 if depth < DEEPEST else 1)
    return objects_of(kind, depth)


def objects_of(kind: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    required, optional = {}, {}
    for name, annotation, is_required in fields_of(kind):
        if name not in NOT_OURS.get(kind.__name__, ()):
            values = later(annotation, depth)
            values = values.filter(lambda value: value is not None) if name in DROPPED_IF_NULL else values
            (required if is_required else optional)[name] = values
    for name, annotation in ALWAYS.get(kind.__name__, {}).items():
        optional.pop(name, None)
        required[name] = later(annotation, depth)
    return st.fixed_dictionaries(required, optional=optional if depth <= DEEPEST else {})


def fields_of(kind: Any) -> Iterable[tuple[str, Any, bool]]:
    if is_typeddict(kind):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            mark = get_origin(hint)
            yield name, hint, mark is Required or (kind.__total__ and mark is not NotRequired)
    else:
        assert issubclass(kind, BaseModel)
        kind.model_rebuild()
        for name, field in kind.model_fields.items():
            yield field.alias or name, field.annotation, field.is_required()


def later(kind: Any, depth: int) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values_of(kind, depth + 1))


def is_left_out(kind: Any) -> bool:
    return "*" in NOT_OURS.get(getattr(kind, "__name__", ""), ())


def round_trip(ours: type[BaseModel], value: Any) -> Any:
    """Return the JSON that a second process reads after a first one has read and forwarded the value."""
    sent = ours.model_validate(value).model_dump_json(exclude_unset=True)
    return ours.model_validate_json(sent).model_dump(mode="json", exclude_unset=True)


@MODERATELY
@given(values_of(responses.Response))
def test_response_round_trips(value: dict[str, Any]) -> None:
    assert round_trip(Response, value) == value
    TypeAdapter(responses.Response).validate_python(Response.model_validate(value).model_dump(exclude_unset=True))


@MODERATELY
@given(values_of(TheirCompletion))
def test_chat_completion_round_trips(value: dict[str, Any]) -> None:
    assert round_trip(ChatCompletion, value) == value


@MODERATELY
@given(values_of(ResponseCreateParamsNonStreaming), values_of(str))
def test_responses_request_round_trips(value: dict[str, Any], text: str) -> None:
    value.setdefault("input", text)
    assert round_trip(ResponseCreateParams, value) == value


@MODERATELY
@given(values_of(CompletionCreateParamsNonStreaming))
def test_chat_completions_request_round_trips(value: dict[str, Any]) -> None:
    assert round_trip(ChatCompletionCreateParams, value) == value


OWN_ITEMS = st.one_of(
    values_of(responses.ResponseOutputMessage),
    values_of(responses.ResponseFunctionToolCall),
    values_of(responses.ResponseReasoningItem),
)


@MODERATELY
@given(OWN_ITEMS, st.sampled_from([7, {"a": 1}, [1], None]), st.data())
def test_invalid_item_is_accepted_exactly_like_the_sdk(item: dict[str, Any], wrong: Any, data: st.DataObject) -> None:
    names = [name for name in CHECKED if name in item and (item["type"], name) not in LENIENT]
    item[data.draw(st.sampled_from(names))] = wrong
    theirs = {**BARE, "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    assert is_read(Response, {**BARE, "output": [item]}) is is_read(responses.Response, theirs)


CHECKED = ("type", "role", "content", "arguments", "call_id", "name", "summary")
LENIENT = {("reasoning", "content")}
"""Fields that our models accept with items of any type, unlike the SDK."""


def is_read(kind: type[BaseModel], value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": []}
BARE = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []}
TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
CHAT = {"role": "assistant", "content": "hi"}


def completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]}


def test_unknown_response_fields_survive_at_every_level() -> None:
    part = {"type": "output_text", "text": "hi", "annotations": [], "weight": 3}
    value = {**BARE, "output": [{**MESSAGE, "content": [part], "mood": "good"}], "engine": {"name": "e"}}
    assert round_trip(Response, value) == value
    chat = {**completion({**CHAT, "reasoning_content": "well", "mood": "good"}), "engine": "e"}
    assert round_trip(ChatCompletion, chat) == chat


def test_unknown_request_fields_depend_on_the_api() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ResponseCreateParams.model_validate({"input": "hi", "beam_width": 3})
    request = ChatCompletionCreateParams.model_validate({"messages": [], "beam_width": 3})
    assert request.model_dump(exclude_unset=True) == {"messages": []}


def test_chat_request_keeps_fields_of_newer_endpoints() -> None:
    newer = {
        "messages": [],
        "moderation": {"model": "m"},
        "output_config": {"effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    assert round_trip(ChatCompletionCreateParams, newer) == newer


@each_case(
    "message",
    [
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}], "status": "completed"},
        {"role": "assistant", "content": [], "id": "m", "type": "message"},
    ],
)
def test_phase_of_a_message_is_optional(message: dict[str, Any]) -> None:
    for item in (message, {**message, "phase": "commentary"}):
        (read,) = ResponseCreateParams.model_validate({"input": [item]}).input
        assert getattr(read, "phase") == item.get("phase")  # noqa: B009 - not all items have one
        assert item.items() <= read.model_dump(exclude_unset=True).items()
        assert ("phase" in read.model_dump()) == ("phase" in item)


@each_case("stream", [True, "yes", 1])
def test_a_plain_request_does_not_stream(stream: Any) -> None:
    with pytest.raises(ValidationError):
        ResponseCreateParams.model_validate({"input": "hi", "stream": stream})


@each_case("kind", ["mesage", None, 7, {"a": 1}, ["message"]])
def test_item_of_unknown_type_is_rejected(kind: Any) -> None:
    assert not is_read(Response, {**BARE, "output": [{**MESSAGE, "type": kind}]})
    # In a request, null means that the type is missing.
    is_null = kind is None
    assert is_read(ResponseCreateParams, {"input": [{"type": kind, "role": "user", "content": "hi"}]}) is is_null


@each_case(
    ("item", "sent"),
    [
        (
            {"type": None, "role": "user", "content": "hi", "id": None, "status": None, "call_id": None},
            {"role": "user", "content": "hi"},
        ),
        (
            {
                "type": "message",
                "role": "assistant",
                "id": None,
                "content": [{"type": "output_text", "text": "a", "x": None}],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
        ),
        (
            {"type": None, "role": "user", "content": [{"type": "input_text", "text": "a", "image_url": None}]},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        ),
    ],
)
def test_null_fields_of_input_messages_are_absent(item: Any, sent: Any) -> None:
    given = copy.deepcopy(item)
    assert ResponseCreateParams.model_validate({"input": [item]}).model_dump(exclude_unset=True) == {"input": [sent]}
    assert item == given


def test_only_request_messages_may_omit_their_type() -> None:
    typeless = {key: value for key, value in MESSAGE.items() if key != "type"}
    assert not is_read(Response, {**BARE, "output": [typeless]})
    assert is_read(ResponseCreateParams, {"input": [{"role": "user", "content": "hi"}]})


@each_case("field", REQUIRED_TOKEN_METADATA_FIELDS)
@each_case("is_there", [True, False])
def test_token_fields_are_all_or_nothing(field: str, is_there: bool) -> None:
    some = {key: value for key, value in TOKENS.items() if (key == field) is is_there}
    assert not is_read(Response, {**BARE, "output": [{**MESSAGE, **some}]})
    assert not is_read(ResponseCreateParams, {"input": [{**MESSAGE, **some}]})
    assert not is_read(ChatCompletion, completion({**CHAT, **some}))
    assert not is_read(ChatCompletionCreateParams, {"messages": [{**CHAT, **some}]})


def test_tokens_round_trip() -> None:
    value = {**BARE, "output": [{**MESSAGE, **TOKENS}]}
    assert round_trip(Response, value) == value
    chat = completion({**CHAT, **TOKENS})
    assert round_trip(ChatCompletion, chat) == chat
    assert not is_read(ChatCompletion, completion({**CHAT, **TOKENS, "prompt_token_ids": ["one"]}))


@each_case("message", [{"role": "robot", "content": "hi"}, {"content": "hi"}, {"role": "tool", "content": "hi"}])
def test_invalid_chat_message_is_rejected(message: dict[str, Any]) -> None:
    assert not is_read(ChatCompletionCreateParams, {"messages": [message]})


@each_case(("choice", "is_legal"), [("required", True), ({"type": "function", "name": "f"}, True), ("x", False)])
def test_tool_choice_is_a_known_word_or_object(choice: Any, is_legal: bool) -> None:
    assert is_read(ResponseCreateParams, {"input": "hi", "tool_choice": choice}) is is_legal
