"""Tests of agent observations and of the trajectories built from them."""

import pytest
from pydantic import ValidationError

from nemo_gym import rollout_observability as published
from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.rollout_collection import _attach_trajectory_record
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
    TrajectoryToolCall,
    TrajectoryTurn,
    join_model_call_observations,
)
from tests.each_case import each_case

REQUIRED = {
    "AgentEpisode": {"episode_id": "e"},
    "AgentInvocation": {"invocation_id": "i"},
    "AgentObservationBundle": {"source": "a"},
    "ContextCompactionObservation": {},
    "ModelCallRef": {},
    "ObservationGap": {"code": "c"},
    "SandboxObservation": {"sandbox_id": "s"},
    "ToolCallObservation": {"tool_call_id": "t"},
    "TrajectoryModelCall": {"model_call_id": "m"},
    "TrajectoryRecord": {},
    "TrajectoryTokenStats": {},
    "TrajectoryToolCall": {"tool_call_id": "t"},
    "TrajectoryTurn": {"turn_no": 1},
}
ROW = {
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
    "problem_id": "p-3",
    "agent_ref": {"name": "solver"},
    "responses_create_params": {
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]},
        ]
    },
}
RESULT = {
    "reward": 1.0,
    "resolved": True,
    "response": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}]},
            {"type": "function_call", "call_id": "f1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "f1", "output": "seen"},
            {"type": "function_call", "call_id": "f2", "name": "look", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]},
        ]
    },
}


def captured(number, **fields):
    answer = {"id": f"resp_{number}", "usage": {"input_tokens": 2, "output_tokens": 1}}
    return ModelCallRecord(
        model_call_id=f"call_{number}", dialect="responses", started_at=number, response=answer, **fields
    )


@each_case("name", REQUIRED)
def test_every_model_rejects_unknown_fields(name):
    model = getattr(published, name)
    made = model(**REQUIRED[name])
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model(**REQUIRED[name], misspelt=1)
    with pytest.raises(ValidationError):
        made.misspelt = 1
    assert model.model_validate_json(made.model_dump_json()) == made


def test_assigned_values_are_validated():
    invocation = AgentInvocation(invocation_id="i")
    invocation.status = "completed"
    with pytest.raises(ValidationError):
        invocation.duration_ms = -1
    turn = TrajectoryTurn(turn_no=1)
    with pytest.raises(ValidationError):
        turn.turn_no = 0


@pytest.mark.parametrize("moment", [12.5, "2026-01-02T03:04:05Z"])
def test_moment_keeps_its_format(moment):
    call = ToolCallObservation(tool_call_id="t", started_at=moment)
    assert call.model_dump(mode="json")["started_at"] == moment


def test_bundle_distinguishes_records_by_kind():
    records = [
        AgentInvocation(invocation_id="i"),
        ToolCallObservation(tool_call_id="t"),
        ContextCompactionObservation(invocation_id="i"),
        SandboxObservation(sandbox_id="s"),
    ]
    bundle = AgentObservationBundle(source="a", records=records, gaps=[ObservationGap(code="c")])
    dumped = bundle.model_dump(mode="json")
    assert set(dumped) == {"source", "records", "gaps"}
    kinds = [record["kind"] for record in dumped["records"]]
    assert kinds == ["agent_invocation", "tool_call", "context_compaction", "sandbox"]
    assert AgentObservationBundle.model_validate(dumped) == bundle
    with pytest.raises(ValidationError):
        AgentObservationBundle(source="a", records=[{"kind": "thought"}])


def test_calls_belong_to_the_invocation_naming_them():
    episode = AgentEpisode(episode_id="e", model_calls=[ModelCallRef(response_id="resp_2")])
    main = AgentInvocation(
        invocation_id="main", model_calls=[ModelCallRef(model_call_id="call_1")], episodes=[episode]
    )
    helper = AgentInvocation(
        invocation_id="helper", parent_invocation_id="main", model_calls=[ModelCallRef(response_id="resp_9")]
    )
    joined = join_model_call_observations([main, helper], [captured(2), captured(1), captured(3)])
    assert [(call.model_call_id, call.invocation_id) for call in joined.model_calls] == [
        ("call_1", "main"), ("call_2", "main"), ("call_3", None),
    ]  # fmt: skip
    assert [(gap.code, gap.invocation_id) for gap in joined.gaps] == [
        ("model_call_not_captured", "helper"), ("model_call_not_claimed", None),
    ]  # fmt: skip


def test_single_invocation_owns_all_calls():
    joined = join_model_call_observations([AgentInvocation(invocation_id="i")], [captured(1), captured(2)])
    assert [call.invocation_id for call in joined.model_calls] == ["i", "i"]
    assert joined.gaps == []


def test_trajectory_without_observations_comes_from_response():
    result = _attach_trajectory_record(ROW, dict(RESULT), [captured(1), captured(2, error_category="timeout")])
    trajectory = TrajectoryRecord.model_validate(result["ng_trajectory"])
    assert (trajectory.schema_version, trajectory.task_id, trajectory.rollout_id) == ("1.0", "p-3", "3-1")
    assert [invocation.agent_name for invocation in trajectory.invocations] == ["solver"]
    (turn,) = trajectory.turns
    assert (turn.question, turn.answer, turn.reasoning_content) == ("Where?", "There.", "Look it up.")
    assert (turn.turn_no, turn.step_count, turn.resolved, turn.timestamp) == (1, 2, True, 1.0)
    assert [call.model_call_id for call in turn.model_calls] == ["call_1", "call_2"]
    assert [(call.tool_call_id, call.status, call.output) for call in trajectory.tool_calls] == [
        ("f1", "completed", "seen"), ("f2", None, None),
    ]  # fmt: skip
    assert [call.tokens.tokens_total for call in trajectory.model_calls] == [3, 3]
    assert [call.error_category for call in trajectory.model_calls] == [None, "timeout"]
    assert [gap.code for gap in trajectory.gaps] == ["no_agent_observations"]


def test_observations_take_precedence_over_the_response():
    bundle = AgentObservationBundle(
        source="solver",
        records=[
            AgentInvocation(invocation_id="main"),
            ToolCallObservation(tool_call_id="t", tool_name="shell", duration_ms=4.0, timing_source="agent"),
        ],
        gaps=[ObservationGap(code="no_sandbox_times")],
    )
    row = {**RESULT, "ng_agent_observations": bundle.model_dump(mode="json")}
    trajectory = TrajectoryRecord.model_validate(_attach_trajectory_record(ROW, row, [captured(1)])["ng_trajectory"])
    assert trajectory.invocations == bundle.invocations
    assert trajectory.tool_calls == [
        TrajectoryToolCall(tool_call_id="t", tool_name="shell", duration_ms=4.0, timing_source="agent")
    ]
    assert [call.invocation_id for call in trajectory.model_calls] == ["main"]
    assert [gap.code for gap in trajectory.gaps] == ["no_sandbox_times"]


def test_unreadable_observations_are_a_gap():
    row = {**RESULT, "ng_agent_observations": {"source": "a", "records": [{"kind": "tool_call"}]}}
    trajectory = _attach_trajectory_record(ROW, row)["ng_trajectory"]
    (gap,) = trajectory["gaps"]
    assert gap["code"] == "unreadable_agent_observations"
    assert "tool_call_id: Field required" in gap["detail"]


def test_trajectory_of_the_agent_is_kept():
    assert _attach_trajectory_record(ROW, {"ng_trajectory": "its own"})["ng_trajectory"] == "its own"


@each_case("result", [{}, {"response": None}, {"response": {"output": "odd"}}, {"response": []}])
def test_failed_rollout_has_a_trajectory(result):
    trajectory = TrajectoryRecord.model_validate(_attach_trajectory_record({}, result)["ng_trajectory"])
    assert trajectory.turns[0].answer is None
    assert trajectory.rollout_id is None
