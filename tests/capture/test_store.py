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
FUNCTION = {"name": "look", "arguments": '{"at": "it"}'}
USAGE = {
    "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 13,
}  # fmt: skip
ANSWER = {
    "id": "resp_1",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [
        {"type": "reasoning", "summary": [{"text": "Hm."}]},
        {"type": "function_call", "call_id": "c", **FUNCTION},
    ],
    "usage": USAGE,
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


def test_sums_include_failed_calls(store):
    for number in range(2):
        store.record("1-0", call(number, response=ANSWER))
    store.record("1-0", call(2, error_category="exception"))
    assert aggregate_model_call_metrics(store, "1-0") == {
        "tokens_in": 20, "tokens_out": 6, "tokens_reasoning": 4, "tokens_total": 26, "cached_tokens": 8,
        "latency_total_ms": 15.0, "num_calls": 3,
    }  # fmt: skip


def test_unreported_sums_are_unknown(store):
    assert set(aggregate_model_call_metrics(store, "1-0").values()) == {None, 0}
    store.record("1-0", call(0, response={"usage": {"input_tokens": 0, "output_tokens": True}}))
    store.record("1-0", call(1, response={"usage": None}))
    metrics = aggregate_model_call_metrics(store, "1-0")
    assert (metrics["tokens_in"], metrics["tokens_out"], metrics["cached_tokens"]) == (0, None, None)
    assert (metrics["latency_total_ms"], metrics["num_calls"]) == (10.0, 2)


def test_record_has_the_facts_of_the_answer(store):
    store.record("1-0", call(response=ANSWER, request={"model": "asked"}))
    (record,) = read_model_call_records(store, "1-0")
    assert record.model_dump(exclude_none=True, exclude={"request", "response", "started_at", "completed_at"}) == {
        "call_index": 0, "model_call_id": "call_0", "dialect": "responses", "response_id": "resp_1", "model": "asked",
        "response_status": "incomplete", "finish_reason": "max_output_tokens", "reasoning_content": "Hm.",
        "tool_calls": [{"call_id": "c", "name": "look", "arguments": {"at": "it"}}], "latency_total_ms": 5.0,
        "tokens_in": 10, "tokens_out": 3, "tokens_reasoning": 2, "tokens_total": 13, "cached_tokens": 4,
        "cache_hit": True,
    }  # fmt: skip


@each_case(
    ("choices", "reason"),
    [
        ([{"finish_reason": "stop", "native_finish_reason": "STOP"}, {"native_finish_reason": "MAX"}], "STOP"),
        ([{"finish_reason": "stop"}], None),
        ([{"native_finish_reason": 7}], None),
        ([], None),
    ],
)
def test_record_has_the_providers_finish_reason(store, choices, reason):
    store.record("1-0", call(response={"choices": choices}))
    *_, record = read_model_call_records(store, "1-0")
    assert record.native_finish_reason == reason


@each_case(
    ("response", "cached"),
    [
        ({"usage": {"input_tokens_details": {"cached_tokens": 0}}}, (False, 0, None)),
        ({"usage": {"cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}}, (True, 3, 2)),
        ({"status": 5, "choices": "none", "usage": 7, "output": [5]}, (None, None, None)),
    ],
)
def test_record_has_the_cache_of_the_answer(store, response, cached):
    store.record("1-0", call(response=response))
    *_, record = read_model_call_records(store, "1-0")
    assert (record.cache_hit, record.cached_tokens, record.cache_creation_tokens) == cached
    assert (record.response_status, record.finish_reason, record.latency_ttft_ms) == (None, None, None)
