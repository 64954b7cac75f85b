"""Items of recorded conversations in each API."""

from nemo_gym.records.conversation import (
    answer_of,
    calls_of,
    finish_reason_of,
    is_of_model,
    output_of,
    prompt_of,
    reasoning_of,
    texts_of,
    turns,
)
from tests.each_case import each_case

FUNCTION = {"name": "look", "arguments": '{"at": "sky"}'}
CALL = {"type": "function_call", "call_id": "c", **FUNCTION}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "blue"}
SAID = {"type": "message", "role": "assistant", "content": "Blue."}
ASKED = {"role": "user", "content": "What colour?"}
ANSWERS = [
    {"output": [{"type": "reasoning", "summary": [{"text": "Hm."}]}, CALL], "incomplete_details": {"reason": "end"}},
    {
        "choices": [
            {
                "message": {"reasoning": "Hm.", "tool_calls": [{"id": "c", "function": FUNCTION}]},
                "finish_reason": "end",
            }
        ]
    },
    {
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "sky"}},
        ],
        "stop_reason": "end",
    },
]


@each_case("answer", ANSWERS)
def test_each_api_gives_the_same_items(answer):
    items = list(answer_of(answer))
    assert [item["type"] for item in items] == ["reasoning", "function_call"]
    assert calls_of(items) == [{"call_id": "c", "name": "look", "arguments": {"at": "sky"}}]
    assert reasoning_of(items) == "Hm."
    assert finish_reason_of(answer) == "end"


@each_case("answer", [{}, {"output": 0, "choices": "x", "messages": 5, "content": "x"}, {"choices": [5]}])
def test_answers_may_have_no_items(answer):
    assert (list(answer_of(answer)), finish_reason_of(answer), reasoning_of([])) == ([], None, None)


def test_finish_reason_is_that_of_the_first_choice():
    choices = [{"finish_reason": "stop"}, {"finish_reason": "length"}]
    assert finish_reason_of({"stop_reason": None, "choices": choices}) == "stop"


def test_prompt_may_be_text_or_messages():
    wanted = [ASKED]
    for params in ({"input": "What colour?"}, {"input": [ASKED]}, {"messages": [ASKED]}):
        assert list(prompt_of({"responses_create_params": params})) == wanted
    assert list(prompt_of({"messages": [ASKED]})) == wanted
    instructed = {"responses_create_params": {"instructions": "Look.", "input": [5]}}
    assert [item.get("content", item.get("value")) for item in prompt_of(instructed)] == ["Look.", 5]


def test_failed_rollouts_have_recorded_items():
    so_far = {"omitted": 2, "items": [CALL, RESULT]}
    first, *others = output_of({"_ng_failure_conversation": so_far})
    assert (first, others) == ({"type": "omitted", "value": "2 earlier items were not recorded"}, [CALL, RESULT])
    assert list(output_of({"_ng_failure_conversation": so_far, "response": {"output": [SAID]}})) == [SAID]


@each_case(
    ("item", "is_said"),
    [
        (SAID, True),
        ({"content": ""}, True),
        (CALL, True),
        ({"type": "mcp_call"}, True),
        (RESULT, False),
        (ASKED, False),
    ],
)
def test_items_show_who_wrote_them(item, is_said):
    assert is_of_model(item) is is_said


def test_received_items_separate_turns():
    assert list(turns([CALL, CALL, RESULT, SAID, ASKED, RESULT, SAID])) == [[CALL, CALL], [SAID], [SAID]]


@each_case(
    ("content", "texts"),
    [("Hi", ["Hi"]), ([{"text": "a"}, "b", {"text": ""}, {"text": 5}, 5], ["a", "b"]), (None, []), ("", [])],
)
def test_texts_are_found_in_parts(content, texts):
    assert texts_of(content) == texts
