"""Tests of the time line of a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.viewer.timeline import seconds_of_calls, timeline_of


def model_call(name: str, started_at: float, duration_ms: float, **answer: Any) -> dict[str, Any]:
    model = {"type": "responses_api_models", "name": name}
    metadata = {"model_ref": model, "status_code": 200, **answer}
    tokens = {"prompt_tokens": 1200, "completion_tokens": 3}
    times = {"started_at": started_at, "duration_ms": duration_ms}
    return {**times, "response_metadata": metadata, "token_stats": tokens}


RECORD = {
    "ng_trajectory": {
        "model_calls": [
            model_call("answer_judge", 103.0, 250),
            model_call("policy_model", 100.5, 1500),
            model_call("policy_model", 102.25, 500, error_category="timeout"),
        ],
        "tool_calls": [
            {"tool_call_id": "c1", "tool_name": "add", "started_at": 102.0, "duration_ms": 250.0},
            {"tool_call_id": "c2", "tool_name": "untimed", "started_at": None},
        ],
    }
}


def test_calls_are_in_order_per_tier():
    spans = timeline_of(RECORD, turns=2)
    assert [(each["tier"], each["name"], each["start_ms"], each["duration_ms"], each["turn"]) for each in spans] == [
        ("model", "policy_model", 0.0, 1500.0, 1),
        ("environment", "add", 1500.0, 250.0, None),
        ("model", "policy_model", 1750.0, 500.0, 2),
        ("judge", "answer_judge", 2500.0, 250.0, None),
    ]
    assert [each["status"] for each in spans] == ["200", None, "timeout", "200"]
    assert spans[0]["detail"] == "1,200 tokens in, 3 out"


def test_turns_need_one_call_each():
    assert {each["turn"] for each in timeline_of(RECORD, turns=3)} == {None}


def test_measured_tool_calls_have_their_seconds():
    assert seconds_of_calls(RECORD) == {"c1": 0.25}


def test_capture_and_observations_are_enough():
    model = {"type": "responses_api_models", "name": "policy_model"}
    call = {"model_ref": model, "started_at": 11.0, "latency_total_ms": 100.0, "tokens_in": 1200, "tokens_out": 3}
    observed = {"kind": "tool_call", "tool_name": "add", "started_at": 10.0, "completed_at": 10.5}
    record = {
        "ng_model_call_capture": {"calls": [call]},
        "ng_agent_observations": {"records": [observed]},
    }
    assert [(each["name"], each["start_ms"], each["detail"]) for each in timeline_of(record, turns=1)] == [
        ("add", 0.0, None),
        ("policy_model", 1000.0, "1,200 tokens in, 3 out"),
    ]


def test_rollouts_without_times_have_none():
    assert timeline_of({"reward": 1.0}, turns=1) == []


@pytest.mark.parametrize("anything", [None, 5, "x", [], {"calls": 5}, {"model_calls": [5, {"started_at": "x"}]}])
def test_hostile_records_never_raise(anything: object):
    keys = ("ng_trajectory", "ng_model_call_capture", "ng_agent_observations")
    assert timeline_of(dict.fromkeys(keys, anything), turns=1) == []
    assert seconds_of_calls(dict.fromkeys(keys, anything)) == {}
