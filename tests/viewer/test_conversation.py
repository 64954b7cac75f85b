"""Tests of the items that a conversation is shown as."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.viewer.conversation import conversation_of
from tests.viewer.rollout_rows import row, said, scored

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"by": 2}'}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def conversation(record: dict[str, Any], seconds: dict[str, float] | None = None):
    return conversation_of(record, lambda number, medium: f"medium {number}", seconds)


def items(*output: dict[str, Any], prompt: object = "Hi") -> list[Any]:
    return conversation(scored(row(prompt=prompt), *output)).items


def texts(found: list[Any]) -> list[str]:
    return [part["text"] for item in found for part in item.get("parts", ())]


def result(output: object, call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def test_prompt_is_followed_by_the_response():
    record = scored(row(prompt=[{"role": "user", "content": "2 + 2?"}]), said("4"))
    record["responses_create_params"]["instructions"] = "Be brief."
    found = conversation(record).items
    assert [(item["role"], item["in_prompt"], item["turn"]) for item in found] == [
        ("system", True, None),
        ("user", True, None),
        ("assistant", False, 1),
    ]
    assert texts(found) == ["Be brief.", "2 + 2?", "4"]


def test_claims_of_a_program_are_marked():
    claim = {"type": "message", "role": "user", "content": "It is 4.", "claimed_by_program": "assistant"}
    assert texts(items(claim))[1:] == ["(claimed by the program, as assistant)", "It is 4."]


def test_each_call_has_its_result():
    second = {**CALL, "call_id": "c2", "arguments": "not JSON"}
    _, one, two, answer = items(CALL, second, result("second", "c2"), result("first"), said("done"))
    assert (one["arguments"], texts([{"parts": one["result"]}])) == ({"by": 2}, ["first"])
    assert (two["arguments"], texts([{"parts": two["result"]}])) == ("not JSON", ["second"])
    assert [one["turn"], two["turn"], answer["turn"]] == [1, 1, 2]


def test_equal_call_ids_are_paired_in_order():
    found = items(CALL, result("first"), CALL, result("second"), CALL)
    assert [item["result"] and item["result"][0]["text"] for item in found[1:]] == ["first", "second", None]
    found = items(CALL, CALL, result("first"), result("second"))
    assert [item["result"][0]["text"] for item in found[1:]] == ["first", "second"]


def test_result_without_a_call_is_shown():
    *_, orphan = items(result("lost", "nowhere"))
    assert (orphan["kind"], orphan["value"]["output"]) == ("other", "lost")


@pytest.mark.parametrize(
    ("output", "is_failure"),
    [
        ("Error: the account is closed", True),
        ("Invalid arguments for add: 'by' is missing", True),
        ('{"error": "no such tool"}', True),
        ("The word Error: occurs later", False),
        ('{"error": null, "value": 3}', False),
        ('{"value": 3', False),
    ],
)
def test_failed_tool_calls_are_marked(output: str, is_failure: bool):
    assert items(CALL, result(output))[1]["failed"] is is_failure


def test_measured_durations_belong_to_their_calls():
    assert conversation(scored(row(), CALL), {"c1": 1.5}).items[1]["seconds"] == 1.5


def test_reasoning_is_content_or_summary():
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Thought."}]}
    secret = {"type": "reasoning", "summary": [], "encrypted_content": "abc"}
    _, one, two, three = items(thought, summary, secret)
    assert (one["text"], one["is_summary"]) == ("Hm.", False)
    assert (two["text"], two["is_summary"]) == ("Thought.", True)
    assert (three["kind"], three["value"]) == ("other", "3 characters, encrypted by the endpoint")


def test_chat_completions_are_read_too():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"by": 1}'}}
    record = row()
    record["responses_create_params"] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Go"}]}]}
    record["response"] = {
        "output": [
            {"role": "assistant", "content": None, "reasoning_content": "Let me add.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "assistant", "content": "Done"},
        ]
    }
    found = conversation(record).items
    assert [item["kind"] for item in found] == ["message", "reasoning", "tool", "message"]
    assert (found[2]["name"], found[2]["arguments"], found[2]["result"][0]["text"]) == ("add", {"by": 1}, "1")
    record["response"] = {"choices": [{"message": {"role": "assistant", "content": "Hello"}}]}
    assert texts(conversation(record).items) == ["Go", "Hello"]


def test_hosted_tools_have_their_results():
    mcp = {"type": "mcp_call", "id": "m", "name": "look", "arguments": "{}", "output": "sun", "error": None}
    broken = {**mcp, "output": None, "error": "no connection"}
    search = {"type": "web_search_call", "id": "w", "action": {"query": "weather"}, "status": "completed"}
    _, one, two, three = items(mcp, broken, search)
    assert (one["result"][0]["text"], one["failed"]) == ("sun", False)
    assert (two["result"][0]["text"], two["failed"]) == ("no connection", True)
    assert (three["name"], three["arguments"], three["result"]) == ("web_search", {"query": "weather"}, None)


def test_images_are_numbered_in_order():
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    chat = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    found = conversation(scored(row(prompt=[{"role": "user", "content": [image, chat]}]), CALL, result([image])))
    shown = [*found.items[0]["parts"], *found.items[1]["result"]]
    assert [(part["kind"], part["source"]) for part in shown] == [("image", f"medium {n}") for n in range(3)]
    assert len(found.media) == 3


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "https://example.com/cat.png"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4="},
        {"type": "input_image", "image_url": "data:image/png;base64,PHN2Zz48L3N2Zz4="},
        {"type": "input_image", "image_url": 5},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
    ],
)
def test_unsafe_media_have_only_a_note(part: dict[str, Any]):
    shown = items(prompt=[{"role": "user", "content": [part]}])[0]["parts"][0]
    assert shown["source"] is None
    assert shown["note"]


def test_failed_rollouts_show_their_conversation_so_far():
    record = {**row(), "_ng_failure_class": "timeout", "_ng_failure_conversation": {"items": [CALL], "omitted": 3}}
    found = conversation(record).items
    assert [item["kind"] for item in found] == ["message", "other", "tool"]
    assert found[1]["value"] == "3 earlier items were not recorded"


def test_long_texts_are_cut():
    found = items(said("x" * 200_000))
    part = found[1]["parts"][0]
    assert len(part["text"]) + part["omitted"] == 200_000
    assert part["omitted"] > 100_000


def test_many_long_parts_are_cut():
    content = [{"type": "output_text", "text": "y" * 50_000} for _ in range(100)]
    parts = items({"role": "assistant", "content": content})[1]["parts"]
    assert sum(len(part["text"]) for part in parts) < 300_000
    assert sum(len(part["text"]) + part["omitted"] for part in parts) >= 5_000_000


@pytest.mark.parametrize(
    "anything",
    [
        None, 5, "text", [], {}, [5, None, "x", []], [{"type": 5}],
        [{"type": "message", "role": 7, "content": {"a": 1}}],
        [{"type": "function_call"}], [{"type": "function_call_output", "call_id": []}], [{"type": "reasoning"}],
        [{"role": "tool"}], [{"role": "assistant", "tool_calls": [{"function": 5}, 5], "function_call": "f"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_image"}, {"type": []}, 5, None]}],
        [{"type": "input_audio", "input_audio": "x"}], [{"type": "x_output", "call_id": None, "output": {"deep": {}}}],
    ],
)  # fmt: skip
def test_hostile_items_never_raise(anything: object):
    record = {
        "responses_create_params": {"input": anything, "instructions": anything},
        "response": {"output": anything},
    }
    conversation(record)
    conversation({"response": anything, "responses_create_params": anything, "_ng_failure_conversation": anything})
    conversation({"response": {"choices": anything}, "_ng_failure_conversation": {"items": anything, "omitted": "x"}})
