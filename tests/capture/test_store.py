"""Tests of the capture store: concurrent writers, torn lines, and ids that would leave the folder."""

import subprocess
import sys

import pytest

from nemo_gym.base_responses_api_model import (
    CaptureStore,
    aggregate_model_call_metrics,
    read_model_call_records,
)
from nemo_gym.errors import ConfigError, DataError
from tests.each_case import each_case

WRITER = """
import sys
from nemo_gym.capture.store import CaptureStore

store, who = CaptureStore(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    store.record("7-0", {"who": who, "number": number, "text": who * 20_000})
"""
ANSWERS = {
    "responses": {
        "id": "resp_1",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 13,
        },
    },
    "chat": {
        "id": "chat_1",
        "usage": {
            "prompt_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens": 3,
            "completion_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 13,
        },
    },
    "messages": {"id": "msg_1", "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3}},
}


@pytest.fixture
def store(tmp_path):
    return CaptureStore(tmp_path / "capture")


def call(number=0, *, dialect="responses", **fields):
    times = {"started_at": float(number), "completed_at": number + 0.005, "latency_ms": 5.0}
    return {"model_call_id": f"call_{number}", "dialect": dialect, **times, **fields}


def test_recorded_calls_are_read_back(store):
    store.record("3-1", {"model_call_id": "a", "request": {"input": "hi"}})
    store.record("3-1", {"model_call_id": "b"})
    assert store.path_for("3-1") == store.root / "3-1.capture.jsonl"
    assert store.read_available("3-1") == (list(enumerate(store.read("3-1"))), 0)
    assert [each["model_call_id"] for each in store.read("3-1")] == ["a", "b"]
    assert store.read("3-2") == []


def test_concurrent_writers_leave_complete_lines(store):
    command = [sys.executable, "-c", WRITER, str(store.root)]
    writers = [
        subprocess.Popen([*command, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for who in "abc"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    lines = store.read("7-0")
    for who in "abc":
        assert [line["number"] for line in lines if line["who"] == who] == list(range(40))
    assert all(line["text"] == line["who"] * 20_000 for line in lines)


def test_torn_line_is_skipped_and_reported(store):
    store.record("1-0", {"model_call_id": "first"})
    with store.path_for("1-0").open("ab") as file:
        file.write(b'{"model_call_id": "to')
    assert store.read_available("1-0") == ([(0, {"model_call_id": "first"})], 1)
    assert not store.is_incomplete("1-0")
    store.record("1-0", {"model_call_id": "last"})
    assert store.read_available("1-0") == ([(0, {"model_call_id": "first"}), (2, {"model_call_id": "last"})], 1)
    assert store.is_incomplete("1-0")
    with pytest.raises(DataError, match=r"1-0\.capture\.jsonl:2: "):
        store.read("1-0")


def test_rollout_is_complete_until_marked(store):
    assert not store.is_incomplete("1-0")
    store.mark_incomplete("1-0")
    assert store.is_incomplete("1-0")
    assert store.incomplete_path_for("1-0") == store.root / "1-0.capture.incomplete"
    assert store.incomplete_path_for("1-0").exists()
    assert not store.is_incomplete("1-1")


@each_case("rollout_id", ["../1-0", "..", ".", "", "a/b", "/etc/passwd", "a\n", "a\0b", "-a", "ä"])
def test_no_id_can_leave_the_folder(store, rollout_id):
    for use in (store.path_for, store.incomplete_path_for, store.mark_incomplete, store.read, store.read_available):
        with pytest.raises(ValueError, match="is not a rollout id"):
            use(rollout_id)
    with pytest.raises(ValueError, match="is not a rollout id"):
        store.record(rollout_id, {})


def test_unusable_folder_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"model_call_capture_dir: .*/file/capture cannot be created"):
        CaptureStore(tmp_path / "file" / "capture").opened()


def test_calls_are_numbered_in_the_order_of_the_file(store):
    for number in (2, 0):
        store.record("1-0", call(number))
    with store.path_for("1-0").open("ab") as file:
        file.write(b'{"model_call_id": "torn\n{"model_call_id": "odd", "started_at": "today"}\n')
    store.record("1-0", call(1))
    records = read_model_call_records(store, "1-0")
    assert [(record.call_index, record.model_call_id) for record in records] == [
        (0, "call_2"), (1, "call_0"), (4, "call_1"),
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", ANSWERS)
def test_tokens_are_counted_equally_in_all_dialects(store, dialect):
    for number in range(2):
        store.record("1-0", call(number, dialect=dialect, response=ANSWERS[dialect]))
    store.record("1-0", call(2, dialect=dialect, error_category="exception"))
    assert aggregate_model_call_metrics(store, "1-0") == {
        "tokens_in": 20,
        "tokens_out": 6,
        # Messages does not report reasoning tokens.
        "tokens_reasoning": None if dialect == "messages" else 4,
        "tokens_total": 26,
        "cached_tokens": 8,
        "latency_total_ms": 15.0,
        "num_calls": 3,
    }


def test_chat_prompt_tokens_include_the_cache(store):
    # LiteLLM reports the cache in the format of both APIs, but counts as Chat Completions does.
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    cache = {"cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}
    store.record("1-0", call(0, dialect="chat", response={"usage": {**usage, **cache}}))
    metrics = aggregate_model_call_metrics(store, "1-0")
    assert (metrics["tokens_in"], metrics["cached_tokens"], metrics["tokens_total"]) == (100, 80, 105)


def test_unreported_sums_are_unknown(store):
    assert set(aggregate_model_call_metrics(store, "1-0").values()) == {None, 0}
    store.record("1-0", call(0, response={"usage": {"input_tokens": 0, "output_tokens": True}}))
    store.record("1-0", call(1, response={"usage": None}))
    metrics = aggregate_model_call_metrics(store, "1-0")
    assert (metrics["tokens_in"], metrics["tokens_out"], metrics["cached_tokens"]) == (0, None, None)
    assert (metrics["latency_total_ms"], metrics["num_calls"]) == (10.0, 2)


@each_case(
    ("response", "status", "reason", "cached"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
         "incomplete", "max_output_tokens", None),
        ({"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]}, None, "stop", None),
        ({"stop_reason": "end_turn", "usage": {"cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}},
         None, "end_turn", (True, 3, 2)),
        ({"stop_reason": None, "choices": [{"finish_reason": "stop"}]}, None, "stop", None),
        ({"usage": {"input_tokens_details": {"cached_tokens": 0}}}, None, None, (False, 0, None)),
        ({"status": 5, "choices": "none", "usage": 7, "output": [5]}, None, None, None),
    ],
)  # fmt: skip
def test_record_has_the_ends_and_caches_of_answers(store, response, status, reason, cached):
    store.record("1-0", call(response=response, request={"model": "asked"}))
    (record,) = read_model_call_records(store, "1-0")
    assert (record.response_status, record.finish_reason) == (status, reason)
    found = (record.cache_hit, record.cached_tokens, record.cache_creation_tokens)
    assert found == (cached or (None, None, None))
    assert record.model == "asked"
    assert (record.latency_total_ms, record.latency_ttft_ms) == (5.0, None)
    store.path_for("1-0").unlink()


FUNCTION = {"name": "look", "arguments": '{"at": "it"}'}


@each_case(
    "response",
    [
        {"output": [{"type": "reasoning", "summary": [{"text": "Hm."}]},
                    {"type": "function_call", "call_id": "c", **FUNCTION}]},
        {"choices": [{"message": {"reasoning_content": "Hm.", "tool_calls": [{"id": "c", "function": FUNCTION}]}}]},
        {"content": [{"type": "thinking", "thinking": "Hm."},
                     {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "it"}}]},
    ],
)  # fmt: skip
def test_record_has_tool_calls_and_reasoning(store, response):
    store.record("1-0", call(response=response))
    (record,) = read_model_call_records(store, "1-0")
    assert record.tool_calls == [{"call_id": "c", "name": "look", "arguments": {"at": "it"}}]
    assert record.reasoning_content == "Hm."
    store.path_for("1-0").unlink()
