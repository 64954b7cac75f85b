"""Tests of the conversion from Chat Completions to Responses, with and without tokens."""

import itertools

from openai.types.responses import Response as OpenAIResponse

from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.dialects.streaming import events_of_response
from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams
from nemo_gym.schemas.items import FunctionToolCallForTraining, OutputMessageForTraining, ReasoningItemForTraining
from nemo_gym.schemas.responses import ResponseCreateParams
from tests.dialects.chat.conversing import CALL, CONVERTER, TOKENS, TRAINING, WEATHER_TOOL, completion, messages
from tests.each_case import each_case


@each_case(
    "message",
    [
        {"content": "42", "reasoning_content": "Six times seven."},
        {"content": "42", "reasoning": "Six times seven."},
        {"content": "42", "reasoning_content": "Six times seven.", "reasoning": "Six times seven."},
        {"content": "42", "thinking_blocks": [{"thinking": "Six times seven."}, {"data": "sealed"}]},
        {"content": "<think>Six times seven.</think>42"},
        {"content": "<think>Six times seven.</think>42", "thinking_blocks": [{"thinking": "Six times seven."}]},
        {"content": [{"type": "text", "text": "<think>Six times seven.</think>42"}]},
    ],
)
def test_reasoning_becomes_an_item_from_any_field(message):
    reasoning, answer = CONVERTER.postprocess_assistant_message_dict({"role": "assistant", **message})
    assert (reasoning.type, reasoning.text) == ("reasoning", "Six times seven.")
    assert (answer.type, answer.text) == ("message", "42")
    assert reasoning.id.startswith("rs_")
    assert answer.id.startswith("msg_")


def test_think_tag_is_text_if_reasoning_is_separate():
    items = CONVERTER.postprocess_assistant_message_dict({"content": "write <think>x</think>", "reasoning": "r"})
    assert items[-1].text == "write <think>x</think>"


def test_calls_keep_their_ids_and_their_order():
    message = {"content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    items = CONVERTER.postprocess_assistant_message_dict(message)
    assert [(item.type, item.call_id, item.name) for item in items] == [
        ("function_call", "call_1", "get_weather"),
        ("function_call", "call_2", "get_weather"),
    ]


def test_empty_answer_is_an_empty_message():
    response = CONVERTER.chat_completion_to_response(ResponseCreateParams(input="Hello"), completion(content=None))
    assert [item.type for item in response.output] == ["message"]
    assert response.last_text == ""


@each_case(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("something_new", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_finish_reason_sets_status(finish_reason, status, reason):
    response = CONVERTER.chat_completion_to_response(
        ResponseCreateParams(input="Hello"), completion(finish_reason, content="so far", tool_calls=[CALL])
    )
    assert response.status == status
    assert [item.status for item in response.output] == ["completed", "completed"]
    assert (response.incomplete_details and response.incomplete_details.reason) == reason


def test_truncated_reasoning_is_not_an_answer():
    response = CONVERTER.chat_completion_to_response(
        ResponseCreateParams(input="Hello"), completion("length", content="<think>it may be \\boxed{3}")
    )
    assert [item.type for item in response.output] == ["reasoning"]
    assert response.last_text == ""


def test_usage_keeps_its_details():
    answer = completion(content="a") | {
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": None,
        }
    }
    usage = CONVERTER.chat_completion_to_response(ResponseCreateParams(input="Hello"), answer).usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (11, 5)
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens, usage.total_tokens) == (7, None, 18)


@each_case(
    ("usage", "cached", "reasoning"),
    [
        ({}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0, None),
        ({"cached_input_tokens": 5, "reasoning_output_tokens": 3}, 5, 3),
        ({"cache_read_input_tokens": 5}, 5, None),
        ({"prompt_tokens_details": {"cached_tokens": 4}, "cached_input_tokens": 5}, 4, None),
        ({"prompt_tokens_details": {"cached_tokens": True}, "cached_input_tokens": -1}, None, None),
        ({"completion_tokens_details": {"reasoning_tokens": 2.0}}, None, None),
    ],
)
def test_unknown_counts_stay_unknown(usage, cached, reasoning):
    answer = completion(content="a") | {"usage": {"prompt_tokens": 11, "completion_tokens": 7, **usage}}
    response = CONVERTER.chat_completion_to_response(ResponseCreateParams(input="Hello"), answer)
    details = (response.usage.input_tokens_details, response.usage.output_tokens_details)
    assert (details[0].cached_tokens, details[1].reasoning_tokens) == (cached, reasoning)
    (*_, ended) = events_of_response(response)
    assert b'"cached_tokens":%d' % (cached or 0) in ended
    assert b'"reasoning_tokens":%d' % (reasoning or 0) in ended


@each_case(
    ("message", "text"),
    [
        ({"content": "<think>t</think>a"}, "<think>t</think>a"),
        ({"content": "t</think>a"}, "t</think>a"),
        ({"content": "a", "reasoning_content": "t"}, "<think>t</think>a"),
        ({"content": None, "reasoning": "t"}, "<think>t</think>"),
    ],
)
def test_reasoning_is_text_without_reasoning_parser(message, text):
    converter = ResponsesConverter(return_token_id_information=False)
    converter.uses_reasoning_parser = False
    [item] = converter.postprocess_assistant_message_dict(message)
    assert (item.type, item.text) == ("message", text)


def test_each_think_block_is_a_paragraph():
    reasoning, _ = CONVERTER.postprocess_assistant_message_dict({"content": "<think>a</think>b<think>c</think>d"})
    assert [part.text for part in reasoning.summary] == ["a", "c"]


def test_openai_client_reads_response_with_all_fields():
    answer = completion("length", content="<think>t</think>text", refusal="no", tool_calls=[CALL], **TOKENS) | {
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "total_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 1},
        }
    }
    answer["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    }
    params = ResponseCreateParams(
        input="Hello",
        tools=[{"type": "function", "name": "f"}, WEATHER_TOOL],
        metadata={"a": "b"},
        text={"format": {"type": "text"}},
        reasoning={"effort": "low"},
        temperature=0.5,
        top_logprobs=1,
    )
    response = TRAINING.chat_completion_to_response(params, ChatCompletion.model_validate(answer))
    for dump in (response.model_dump(), response.model_dump(exclude_unset=True)):
        read = OpenAIResponse.model_validate(dump)
        assert read.output_text == "text"
        assert [item.type for item in read.output] == ["reasoning", "message", "function_call"]


def test_call_without_id_and_with_parsed_arguments_works():
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    [item] = CONVERTER.postprocess_assistant_message_dict({"content": None, "tool_calls": [call]})
    assert item.call_id.startswith("call_")
    assert item.arguments == '{"x":1}'


def test_id_factory_can_be_replaced():
    numbers = itertools.count()
    converter = ResponsesConverter(
        return_token_id_information=False, new_id=lambda prefix: f"{prefix}_{next(numbers)}"
    )
    response = converter.chat_completion_to_response(
        ResponseCreateParams(input="Hello"), completion(content="<think>t</think>a")
    )
    assert sorted([response.id, *(item.id for item in response.output)]) == ["msg_2", "resp_0", "rs_1"]


# Tokens


@each_case(
    ("message", "kind"),
    [
        ({"content": "a", "reasoning": "r"}, OutputMessageForTraining),
        ({"content": "a", "tool_calls": [CALL]}, FunctionToolCallForTraining),
        ({"content": None, "reasoning": "r"}, ReasoningItemForTraining),
    ],
)
def test_tokens_are_on_last_item_and_round_trip(message, kind):
    items = TRAINING.postprocess_assistant_message_dict({"role": "assistant", **message, **TOKENS})
    assert isinstance(items[-1], kind)
    assert [hasattr(item, "prompt_token_ids") for item in items[:-1]] == [False] * (len(items) - 1)
    [sent] = messages(*items, converter=TRAINING)
    assert {name: sent[name] for name in TOKENS} == TOKENS
    assert "prompt_token_ids" not in messages(*items)[0]


def test_tokens_are_dropped_by_default():
    [item] = CONVERTER.postprocess_assistant_message_dict({"content": "a", **TOKENS})
    assert not hasattr(item, "prompt_token_ids")


def test_routed_experts_are_kept_with_tokens():
    [item] = TRAINING.postprocess_assistant_message_dict({"content": "a", **TOKENS, "routed_experts": [[1]]})
    assert item.routed_experts == [[1]]


def test_chat_request_is_converted_to_responses():
    chat = ChatCompletionCreateParams(
        messages=[{"role": "user", "content": "Hello"}],
        max_completion_tokens=10,
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        temperature=0.0,
    )
    params = CONVERTER.chat_completion_to_responses_create_params(chat)
    assert params.model_dump(exclude_unset=True) == {
        "input": [{"role": "user", "content": "Hello"}],
        "max_output_tokens": 10,
        "tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "temperature": 0.0,
    }
