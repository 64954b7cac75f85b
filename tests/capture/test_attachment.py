"""Tests of attaching captured calls to a result: `ng_model_call_capture` and the joined observations."""

import subprocess
import sys

import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore, merge_model_call_capture_into_record

RECORD = {"_ng_task_index": 4, "_ng_rollout_index": 1, "reward": 1.0}
USAGE = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
SERVER = {"type": "responses_api_models", "name": "policy"}
OBSERVABILITY = """
from nemo_gym.rollout_observability import AgentObservationBundle, ModelCallRef


def associate_claude_code_compaction_calls(bundle, calls):
    if not calls:
        raise LookupError("no calls")
    invocation, compaction = bundle.records
    named = [ModelCallRef(model_call_id=call.model_call_id) for call in calls]
    invocation = invocation.model_copy(update={"model_calls": named})
    compaction = compaction.model_copy(update={"model_calls": named})
    return AgentObservationBundle(source=bundle.source, records=[invocation, compaction], gaps=bundle.gaps)
"""


@pytest.fixture
def store(tmp_path):
    return CaptureStore(tmp_path / "capture")


def write(store, number, rollout_id="4-1"):
    response = {"id": f"resp_{number}", "usage": USAGE}
    line = {"model_call_id": f"call_{number}", "dialect": "responses", "model_ref": SERVER, "started_at": 1.0}
    store.record(rollout_id, {**line, "latency_ms": 5.0, "request": {"input": "hi"}, "response": response})


def merged(store, record=RECORD, **settings):
    record = orjson.loads(orjson.dumps(record))
    merge_model_call_capture_into_record(record, [store.root], **settings)
    return record


def observed(*records, source="agent"):
    return {**RECORD, "ng_agent_observations": {"source": source, "records": list(records)}}


def codes(holder):
    return [gap["code"] for gap in holder.get("gaps", [])]


def test_result_gets_the_calls_of_its_rollout(store):
    write(store, 0)
    write(store, 9, "4-0")
    capture = merged(store)["ng_model_call_capture"]
    assert set(capture) == {"rollout_id", "metrics", "calls"}
    assert capture["rollout_id"] == "4-1"
    assert (capture["metrics"]["num_calls"], capture["metrics"]["tokens_total"]) == (1, 13)
    (call,) = capture["calls"]
    assert (call["call_index"], call["model_call_id"], call["latency_total_ms"]) == (0, "call_0", 5.0)
    assert not {"request", "response", "request_raw", "response_raw"} & call.keys()
    (call,) = merged(store, include_payloads=True)["ng_model_call_capture"]["calls"]
    assert (call["request"], call["response"]["id"]) == ({"input": "hi"}, "resp_0")


def test_missing_records_are_gaps(store):
    assert codes(merged(store)["ng_model_call_capture"]) == ["model_call_capture_no_records"]
    write(store, 0)
    with store.path_for("4-1").open("ab") as file:
        file.write(b'{"torn\n{"torn\n')
    store.mark_incomplete("4-1", "call_x could not be written")
    assert merged(store)["ng_model_call_capture"]["gaps"] == [
        {"code": "model_call_capture_records_unreadable", "invocation_id": None, "detail": "count=2"},
        {"code": "model_call_capture_incomplete", "invocation_id": None, "detail": "call_x could not be written"},
    ]
    store.path_for("4-1").unlink()
    store.path_for("4-1").mkdir()
    gaps = codes(merged(store)["ng_model_call_capture"])
    assert gaps == ["model_call_capture_unreadable", "model_call_capture_no_records"]


def test_result_without_rollout_id_is_unchanged(store):
    assert merged(store, {"reward": 1.0}) == {"reward": 1.0}


def test_observations_are_joined_with_the_calls(store):
    write(store, 0)
    call = {"model_ref": SERVER, "response_id": "resp_0"}
    record = merged(store, observed({"kind": "agent_invocation", "invocation_id": "main", "model_calls": [call]}))
    (invocation,) = record["ng_agent_observations"]["records"]
    assert invocation["model_calls"] == [{"model_call_id": "call_0", **call}]
    assert record["ng_agent_observations"]["gaps"] == []


def test_invalid_observations_are_a_gap(store):
    write(store, 0)
    record = merged(store, observed({"kind": "tool_call"}))
    (gap,) = record["ng_model_call_capture"]["gaps"]
    assert gap["code"] == "agent_observation_join_failed"
    assert "invocation_id: Field required" in gap["detail"]
    assert record["ng_agent_observations"]["records"] == [{"kind": "tool_call"}]


COMPACTING = (
    {"kind": "agent_invocation", "invocation_id": "main"},
    {"kind": "context_compaction", "invocation_id": "main"},
)


MERGE = """
import json

from nemo_gym.base_responses_api_model import merge_model_call_capture_into_record

records = json.load(open("records.json"))
print(json.dumps([merge_model_call_capture_into_record(record, "capture") for record in records]))
"""


def test_claude_code_names_the_calls_of_its_compactions(store, tmp_path):
    folder = tmp_path / "responses_api_agents" / "claude_code_agent"
    folder.mkdir(parents=True)
    (folder / "observability.py").write_text(OBSERVABILITY)
    write(store, 0)
    records = [observed(*COMPACTING, source="claude_code"), observed(*COMPACTING)]
    records.append({**records[0], "_ng_rollout_index": 2})
    (tmp_path / "records.json").write_bytes(orjson.dumps(records))
    merging = subprocess.run([sys.executable, "-c", MERGE], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    named, other, without_calls = [each["ng_agent_observations"] for each in orjson.loads(merging.stdout)]
    assert named["records"][1]["model_calls"] == [
        {"model_call_id": "call_0", "model_ref": SERVER, "response_id": "resp_0"}
    ]
    assert codes(named) == []
    assert codes(other) == ["model_call_ownership_unavailable"]
    assert codes(without_calls) == ["compaction_model_call_join_failed"]
    assert "no calls" in without_calls["gaps"][0]["detail"]


def test_missing_claude_code_folder_is_a_gap(store):
    write(store, 0)
    bundle = merged(store, observed(*COMPACTING, source="claude_code"))["ng_agent_observations"]
    assert codes(bundle) == ["compaction_model_call_join_failed", "model_call_ownership_unavailable"]
