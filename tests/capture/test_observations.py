"""Tests of the models of agent observations and trajectories."""

import dataclasses

import pytest
from pydantic import ValidationError

from nemo_gym import rollout_observability as published
from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymFunctionCallOutput, NeMoGymResponse
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryTurn,
)
from nemo_gym.testing import reply
from tests.each_case import each_case

SERVER = {"type": "responses_api_models", "name": "policy"}
TURN = {
    "invocation_id": "i", "task_id": "t", "rollout_id": "r", "turn_no": 1, "timestamp": 1.5, "step_count": 0,
}  # fmt: skip
REQUIRED = {
    "AgentInvocation": {"invocation_id": "i"},
    "AgentObservationBundle": {"source": "a"},
    "ContextCompactionObservation": {"invocation_id": "i"},
    "ModelCallRef": {"model_call_id": "m"},
    "ObservationGap": {"code": "c"},
    "SandboxObservation": {"role": "agent"},
    "ToolCallObservation": {"invocation_id": "i", "tool_call_id": "t"},
    "TrajectoryModelCall": {},
    "TrajectoryRecord": {"task_id": "t", "rollout_id": "r"},
    "TrajectoryResponseMetadata": {},
    "TrajectoryTokenStats": {},
    "TrajectoryToolCall": {"invocation_id": "i", "tool_call_id": "t"},
    "TrajectoryTurn": TURN,
}
TOOL_CALL = {
    "kind": "tool_call", "sandbox_id": None, "tool_name": None, "started_at": None, "completed_at": None,
    "duration_ms": None, "timing_source": None, "status": "unknown", "error_type": None,
}  # fmt: skip
METADATA = {
    "response_id": None, "model_ref": None, "model": None, "dialect": None, "status_code": None,
    "response_status": None, "finish_reason": None, "error_category": None, "latency_ttft_ms": None,
}  # fmt: skip
TOKENS = {
    "prompt_tokens": None, "completion_tokens": None, "reasoning_tokens": None, "total_tokens": None,
    "cached_tokens": None,
}  # fmt: skip
CALL_FIELDS = {
    "call_index", "model_call_id", "response_id", "model_ref", "model", "dialect", "status_code", "response_status",
    "finish_reason", "native_finish_reason", "started_at", "completed_at", "tokens_in", "tokens_out",
    "tokens_reasoning", "tokens_total", "request", "response", "request_raw", "response_raw", "tool_calls",
    "reasoning_content", "cache_hit", "cached_tokens", "cache_creation_tokens", "error_category", "latency_total_ms",
    "latency_ttft_ms",
}  # fmt: skip
DEFAULTS = {
    "AgentInvocation": {
        "kind": "agent_invocation", "parent_invocation_id": None, "spawned_by_tool_call_id": None,
        "status": "unknown", "duration_ms": None, "error_type": None, "model_calls": [], "conversation": [],
    },
    "AgentObservationBundle": {"records": [], "gaps": []},
    "ContextCompactionObservation": {
        "kind": "context_compaction", "observed_at": None, "trigger": None, "tokens_before": None,
        "tokens_after": None, "outcome": "unknown", "summary": None, "first_kept_item_id": None,
        "before_model_call": None, "model_calls": [], "after_model_call": None,
    },
    "ModelCallRef": {"model_ref": None, "response_id": None},
    "ObservationGap": {"invocation_id": None, "detail": None},
    "SandboxObservation": {
        "kind": "sandbox", "provider": None, "sandbox_id": None, "outcome": "unknown", "exit_code": None,
        "wall_time_s": None, "cpu_time_s": None, "peak_memory_mib": None, "resource_usage_source": None,
        "error_type": None,
    },
    "ToolCallObservation": TOOL_CALL,
    "TrajectoryModelCall": {
        "model_call_id": None, "started_at": None, "completed_at": None, "duration_ms": None, "request": None,
        "response": None, "response_metadata": METADATA, "token_stats": TOKENS,
    },
    "TrajectoryRecord": {
        "schema_version": "1.0", "invocations": [], "turns": [], "model_calls": [], "tool_calls": [], "gaps": [],
    },
    "TrajectoryResponseMetadata": METADATA,
    "TrajectoryTokenStats": TOKENS,
    "TrajectoryToolCall": {**TOOL_CALL, "output": None},
    "TrajectoryTurn": {
        "question": None, "answer": None, "reasoning_content": None, "resolved": None, "model_calls": [],
    },
}  # fmt: skip


@each_case("name", REQUIRED)
def test_every_model_has_the_published_fields(name):
    model = getattr(published, name)
    made = model(**REQUIRED[name])
    assert made.model_dump(mode="json") == {**REQUIRED[name], **DEFAULTS[name]}
    assert model.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model(**REQUIRED[name], misspelt=1)
    with pytest.raises(ValidationError):
        made.misspelt = 1
    for field in REQUIRED[name]:
        with pytest.raises(ValidationError):
            model(**{key: value for key, value in REQUIRED[name].items() if key != field})


@each_case(
    ("name", "field", "value"),
    [
        ("AgentInvocation", "status", "timeout"),
        ("AgentInvocation", "duration_ms", -1),
        ("AgentInvocation", "conversation", [{"type": "function_call"}]),
        ("ToolCallObservation", "status", "aborted"),
        ("ToolCallObservation", "timing_source", "agent"),
        ("ToolCallObservation", "duration_ms", -1),
        ("ContextCompactionObservation", "tokens_before", -1),
        ("ContextCompactionObservation", "outcome", "timeout"),
        ("SandboxObservation", "role", "judge"),
        ("SandboxObservation", "outcome", "killed"),
        ("SandboxObservation", "peak_memory_mib", -1),
        ("TrajectoryTurn", "turn_no", 0),
        ("TrajectoryTurn", "step_count", -1),
        ("TrajectoryTurn", "timestamp", None),
        ("TrajectoryTokenStats", "total_tokens", -1),
        ("TrajectoryRecord", "schema_version", "2.0"),
    ],
)
def test_invalid_values_are_rejected_on_assignment(name, field, value):
    model = getattr(published, name)
    with pytest.raises(ValidationError):
        model(**{**REQUIRED[name], field: value})
    with pytest.raises(ValidationError):
        setattr(model(**REQUIRED[name]), field, value)


@each_case(
    ("names", "is_valid"),
    [
        ({"model_call_id": "m"}, True),
        ({"model_ref": SERVER, "response_id": "r"}, True),
        ({"model_ref": SERVER}, False),
        ({"response_id": "r"}, False),
        ({}, False),
    ],
)
def test_reference_must_name_one_call(names, is_valid):
    if is_valid:
        ModelCallRef(**names)
        return
    with pytest.raises(ValidationError, match="needs model_call_id, or both model_ref and response_id"):
        ModelCallRef(**names)


def test_tool_call_cannot_end_before_its_start():
    call = ToolCallObservation(invocation_id="i", tool_call_id="t", started_at=2.0, completed_at=2.0)
    with pytest.raises(ValueError, match=r"ends at 1\.5, before its start at 2"):
        call.completed_at = 1.5


def test_conversation_items_are_parsed_into_their_classes():
    given = [
        {"role": "user", "content": "hi"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    invocation = AgentInvocation(invocation_id="i", conversation=given)
    assert [type(item) for item in invocation.conversation] == [NeMoGymEasyInputMessage, NeMoGymFunctionCallOutput]


def test_turn_contains_anything_as_its_texts():
    items = [{"type": "message", "content": [{"text": "hi"}]}]
    turn = TrajectoryTurn(**TURN, question=items, answer=5, reasoning_content={"a": None})
    assert (turn.question, turn.answer, turn.reasoning_content) == (items, 5, {"a": None})


def test_bundle_distinguishes_records_by_kind():
    records = [
        AgentInvocation(invocation_id="i"),
        ToolCallObservation(invocation_id="i", tool_call_id="t"),
        ContextCompactionObservation(invocation_id="i"),
        SandboxObservation(role="agent"),
    ]
    bundle = AgentObservationBundle(source="a", records=records, gaps=[ObservationGap(code="c")])
    dumped = bundle.model_dump(mode="json")
    assert set(dumped) == {"source", "records", "gaps"}
    kinds = [record["kind"] for record in dumped["records"]]
    assert kinds == ["agent_invocation", "tool_call", "context_compaction", "sandbox"]
    assert AgentObservationBundle.model_validate(dumped) == bundle
    with pytest.raises(ValidationError):
        AgentObservationBundle(source="a", records=[{"kind": "thought"}])


@each_case(
    ("parents", "problem"),
    [
        ([("a", None), ("b", "a"), ("c", "b")], None),
        ([("a", "somewhere else")], None),
        ([("a", None), ("a", None)], "'a' is repeated"),
        ([("a", "a")], "the parents of invocation .a. form a cycle"),
        ([("a", "b"), ("b", "c"), ("c", "a")], "the parents of invocation .a. form a cycle"),
    ],
)
def test_invocations_are_unique_and_form_trees(parents, problem):
    records = [AgentInvocation(invocation_id=own, parent_invocation_id=parent) for own, parent in parents]
    if problem is None:
        assert AgentObservationBundle(source="a", records=records).records == records
        return
    with pytest.raises(ValueError, match=problem):
        AgentObservationBundle(source="a", records=records)


@each_case(
    ("field", "value", "problem"),
    [
        ("invocations", [{"invocation_id": "i"}, {"invocation_id": "i"}], "invocation_id 'i' is repeated"),
        ("model_calls", [{"model_call_id": "m"}, {"model_call_id": "m"}], "model_call_id 'm' is repeated"),
        ("turns", [TURN, TURN], r"turn \('i', 1\) is repeated"),
        ("turns", [{**TURN, "task_id": "other"}], "task 'other'"),
        ("turns", [{**TURN, "rollout_id": "other"}], "rollout 'other'"),
        ("turns", [TURN, {**TURN, "turn_no": 2}, {**TURN, "invocation_id": "j"}], None),
        ("model_calls", [{}, {}], None),
    ],
)
def test_trajectory_is_about_one_rollout(field, value, problem):
    if problem is None:
        TrajectoryRecord(task_id="t", rollout_id="r", **{field: value})
        return
    with pytest.raises(ValueError, match=problem):
        TrajectoryRecord(task_id="t", rollout_id="r", **{field: value})


def test_episode_is_a_response_with_observations():
    response = NeMoGymResponse.model_validate(reply("hi").model_dump())
    episode = AgentEpisode(response=response, observations=AgentObservationBundle(source="a"))
    assert [field.name for field in dataclasses.fields(episode)] == ["response", "observations"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.response = response
    with pytest.raises(TypeError):
        AgentEpisode(response=response)


def test_record_of_a_call_needs_only_its_index():
    record = ModelCallRecord(call_index=0, model_call_id="m", tokens_in=0)
    known = record.model_dump(exclude_defaults=True)
    assert known == {"call_index": 0, "model_call_id": "m", "tokens_in": 0}
    assert set(record.model_dump()) == CALL_FIELDS
    with pytest.raises(ValidationError):
        ModelCallRecord(model_call_id="m")
