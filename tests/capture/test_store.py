"""Tests of the capture store: concurrent writers, torn lines, and ids that would leave the folder."""

import subprocess
import sys

import pytest

from nemo_gym.base_responses_api_model import (
    CaptureStore,
    ModelCallRecord,
    aggregate_model_call_metrics,
    merge_model_call_capture_into_record,
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
    return ModelCallRecord(
        model_call_id=f"call_{number}", dialect=dialect, started_at=float(number), latency_ms=5.0, **fields
    )


def test_recorded_calls_are_read_back(store):
    store.record("3-1", {"model_call_id": "a", "request": {"input": "hi"}})
    store.record("3-1", {"model_call_id": "b"})
    assert store.path_for("3-1") == store.root / "3-1.capture.jsonl"
    assert store.read("3-1") == store.read_available("3-1")
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
    assert [each["model_call_id"] for each in store.read_available("1-0")] == ["first"]
    assert not store.is_incomplete("1-0")
    store.record("1-0", {"model_call_id": "last"})
    assert [each["model_call_id"] for each in store.read_available("1-0")] == ["first", "last"]
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


def test_calls_are_read_by_start_time(store):
    for number in (2, 0, 1):
        store.record("1-0", call(number).line())
    records = read_model_call_records(store, "1-0")
    assert [record.model_call_id for record in records] == ["call_0", "call_1", "call_2"]


@pytest.mark.parametrize("dialect", ANSWERS)
def test_tokens_are_counted_equally_in_all_dialects(store, dialect):
    for number in range(2):
        store.record("1-0", call(number, dialect=dialect, response=ANSWERS[dialect]).line())
    store.record("1-0", call(2, dialect=dialect, error_category="exception").line())
    assert aggregate_model_call_metrics(store, "1-0") == {
        "tokens_in": 20,
        "tokens_out": 6,
        # Messages does not report reasoning tokens.
        "tokens_reasoning": 0 if dialect == "messages" else 4,
        "tokens_total": 26,
        "cached_tokens": 8,
        "latency_total_ms": 15.0,
        "num_calls": 3,
    }


def test_metrics_without_calls_are_zero(store):
    assert set(aggregate_model_call_metrics(store, "1-0").values()) == {0}


def test_result_gets_the_calls_of_its_rollout(store):
    store.record("4-1", call(request={"input": "hi"}, response=ANSWERS["responses"]).line())
    store.record("4-0", call(9).line())
    store.mark_incomplete("4-1", "call_x could not be written")
    record = {"_ng_task_index": 4, "_ng_rollout_index": 1, "reward": 1.0}
    merge_model_call_capture_into_record(record, [store.root])
    capture = record["ng_model_call_capture"]
    assert capture["rollout_id"] == "4-1"
    assert capture["metrics"]["num_calls"] == 1
    assert capture["metrics"]["tokens_total"] == 13
    assert [each["model_call_id"] for each in capture["calls"]] == ["call_0"]
    assert not {"request", "response"} & capture["calls"][0].keys()
    assert capture["gaps"] == [{"code": "capture_incomplete", "detail": "call_x could not be written"}]
    merge_model_call_capture_into_record(record, [store.root], include_payloads=True)
    assert record["ng_model_call_capture"]["calls"][0]["request"] == {"input": "hi"}


@pytest.mark.parametrize("record", [{"reward": 1.0}, {"_ng_task_index": 8, "_ng_rollout_index": 0}])
def test_result_without_captured_calls_is_unchanged(store, record):
    assert merge_model_call_capture_into_record(dict(record), [store.root]) == record
