"""Tests of `ng_trajectory`, made of an agent's trajectory, its observations and the captured calls."""

import copy

from nemo_gym.rollout_collection import _attach_trajectory_record
from nemo_gym.rollout_observability import TrajectoryRecord
from tests.each_case import each_case

ROW = {"_ng_task_index": 3, "_ng_rollout_index": 1, "problem_id": "p-3"}
IDS = {"task_id": "p-3", "rollout_id": "3-1"}
SERVER = {"type": "responses_api_models", "name": "policy"}
CALL = {
    "call_index": 0, "model_call_id": "call_0", "model_ref": SERVER, "response_id": "resp_0", "model": "m",
    "dialect": "responses", "status_code": 200, "response_status": "completed", "started_at": 5.0,
    "completed_at": 6.0, "tokens_in": 10, "tokens_out": 0, "latency_total_ms": 1000.0,
    "request": {"input": "hi"}, "response": {"id": "resp_0", "output": []},
}  # fmt: skip
CONVERSATION = [
    {"role": "user", "content": "Where?"},
    {"type": "function_call", "call_id": "t1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "t1", "output": "there"},
]
INVOCATION = {"kind": "agent_invocation", "invocation_id": "main", "status": "completed", "conversation": CONVERSATION}
TOOL = {"kind": "tool_call", "invocation_id": "main", "tool_call_id": "t1", "started_at": 1.0, "duration_ms": 4.0}
TURN = {
    **IDS, "invocation_id": "main", "turn_no": 1, "timestamp": 5.0, "step_count": 1, "question": [CONVERSATION[0]],
}  # fmt: skip


def attached(result, row=ROW, *, calls=(), gaps=()):
    capture = {"rollout_id": "3-1", "metrics": {}, "calls": list(calls), **({"gaps": list(gaps)} if gaps else {})}
    result = {"ng_model_call_capture": capture, **copy.deepcopy(result)}
    _attach_trajectory_record(row, result)
    return TrajectoryRecord.model_validate(result["ng_trajectory"]), result


def observed(*records, **fields):
    return {"ng_agent_observations": {"source": "agent", "records": list(records), **fields}}


def codes(trajectory):
    return [gap.code for gap in trajectory.gaps]


def test_result_without_records_has_only_gaps():
    trajectory, _ = attached({})
    assert (trajectory.schema_version, trajectory.task_id, trajectory.rollout_id) == ("1.0", "p-3", "3-1")
    assert codes(trajectory) == ["model_calls_unavailable", "turns_unavailable", "conversation_unavailable"]


@each_case(
    ("fields", "task_id"),
    [
        ({"task_id": "t", "instance_id": "i"}, "t"),
        ({"problem_id": 7, "instance_id": "i"}, "7"),
        ({"problem_id": None, "instance_id": "i"}, "i"),
        ({}, "3"),
    ],
)
def test_task_id_is_the_rows_own(fields, task_id):
    row = {"_ng_task_index": 3, "_ng_rollout_index": 1, **fields}
    assert attached({}, row)[0].task_id == task_id


def test_captured_calls_move_into_the_trajectory():
    gap = {"code": "model_call_capture_incomplete", "invocation_id": None, "detail": "the disk is full"}
    trajectory, result = attached({}, calls=[CALL], gaps=[gap])
    (call,) = trajectory.model_calls
    assert (call.request, call.response) == (CALL["request"], CALL["response"])
    assert (call.started_at, call.completed_at, call.duration_ms) == (5.0, 6.0, 1000.0)
    assert (call.response_metadata.model, call.response_metadata.status_code) == ("m", 200)
    assert call.token_stats.model_dump(exclude_none=True) == {"prompt_tokens": 10, "completion_tokens": 0}
    assert result["ng_model_call_capture"] == {"rollout_id": "3-1", "metrics": {}, "gaps": [gap]}
    assert codes(trajectory) == [gap["code"], "turns_unavailable", "conversation_unavailable"]


def test_trajectory_of_the_agent_is_completed():
    own_call = {
        "model_call_id": "call_0", "started_at": 4.0, "response": "cut", "token_stats": {"reasoning_tokens": 3},
        "response_metadata": {"finish_reason": "stop"},
    }  # fmt: skip
    other = {"model_call_id": "call_9", "started_at": 1.0}
    own = {**IDS, "turns": [TURN], "model_calls": [own_call, other], "gaps": [{"code": "own"}]}
    trajectory, _ = attached({"ng_trajectory": own, **observed(INVOCATION)}, calls=[CALL])
    assert [call.model_call_id for call in trajectory.model_calls] == ["call_0", "call_9"]
    call = trajectory.model_calls[0]
    assert (call.started_at, call.response) == (5.0, CALL["response"])
    assert (call.response_metadata.finish_reason, call.response_metadata.model) == ("stop", "m")
    assert (call.token_stats.reasoning_tokens, call.token_stats.prompt_tokens) == (3, 10)
    assert trajectory.turns[0].question == [CONVERSATION[0]]
    assert codes(trajectory) == ["own"]


def test_observed_tool_calls_are_laid_over_the_agents():
    own = {**IDS, "tool_calls": [
        {"invocation_id": "main", "tool_call_id": "t1", "tool_name": "look", "status": "failed", "started_at": 0.5},
        {"invocation_id": "helper", "tool_call_id": "t1", "output": {"a": 1}},
    ]}  # fmt: skip
    second = {"kind": "tool_call", "invocation_id": "helper", "tool_call_id": "t1", "status": "timeout"}
    third = {**TOOL, "tool_call_id": "t2"}
    trajectory, _ = attached({"ng_trajectory": own, **observed(INVOCATION, TOOL, second, third)})
    assert [(call.invocation_id, call.tool_call_id, call.status, call.output) for call in trajectory.tool_calls] == [
        ("main", "t1", "failed", "there"), ("helper", "t1", "timeout", {"a": 1}), ("main", "t2", "unknown", None),
    ]  # fmt: skip
    assert (trajectory.tool_calls[0].tool_name, trajectory.tool_calls[0].started_at) == ("look", 1.0)


def test_observed_invocations_are_added():
    own = {**IDS, "invocations": [{"invocation_id": "main", "error_type": "Slow"}, {"invocation_id": "own"}]}
    helper = {"kind": "agent_invocation", "invocation_id": "helper", "parent_invocation_id": "main"}
    trajectory, _ = attached({"ng_trajectory": own, **observed(INVOCATION, helper)})
    assert [each.invocation_id for each in trajectory.invocations] == ["main", "own", "helper"]
    assert (trajectory.invocations[0].error_type, trajectory.invocations[0].status) == ("Slow", "completed")
    without = [gap.invocation_id for gap in trajectory.gaps if gap.code == "conversation_unavailable"]
    assert without == ["own", "helper"]


def test_turns_are_sorted_by_time_invocation_and_number():
    turns = [
        {**TURN, "turn_no": 3},
        {**TURN, "turn_no": 2},
        {**TURN, "turn_no": 9, "timestamp": 1.0},
        {**TURN, "turn_no": 1, "invocation_id": "b"},
    ]
    trajectory, _ = attached({"ng_trajectory": {**IDS, "turns": turns}})
    assert [(turn.invocation_id, turn.turn_no) for turn in trajectory.turns] == [
        ("main", 9), ("b", 1), ("main", 2), ("main", 3),
    ]  # fmt: skip


def test_trajectory_of_another_rollout_gives_its_turns():
    wrong = {"task_id": "3", "rollout_id": "3-1"}
    own = {**wrong, "turns": [{**TURN, **wrong}], "tool_calls": [{"invocation_id": "main", "tool_call_id": "t1"}]}
    trajectory, _ = attached({"ng_trajectory": own})
    assert [(turn.task_id, turn.rollout_id) for turn in trajectory.turns] == [("p-3", "3-1")]
    assert trajectory.tool_calls == []
    assert codes(trajectory)[0] == "producer_trajectory_identity_mismatch"


@each_case(
    ("result", "code", "problem"),
    [
        ({"ng_trajectory": "its own"}, "producer_trajectory_invalid", "valid dictionary"),
        ({"ng_trajectory": {**IDS, "turns": [{}]}}, "producer_trajectory_invalid", "turns.0.invocation_id"),
        (observed({"kind": "tool_call"}), "agent_observations_invalid", "invocation_id: Field required"),
        ({"ng_agent_observations": []}, "agent_observations_invalid", "valid dictionary"),
    ],
)
def test_invalid_parts_are_gaps(result, code, problem):
    trajectory, _ = attached(result, calls=[CALL])
    (detail,) = [gap.detail for gap in trajectory.gaps if gap.code == code]
    assert problem in detail
    assert len(trajectory.model_calls) == 1


def test_call_may_lack_its_index_and_status():
    brief = {key: value for key, value in CALL.items() if key not in ("call_index", "response_status")}
    calls = [
        {**brief, "response": {"id": "resp_0", "status": "incomplete"}},
        {**brief, "model_call_id": "call_1", "response_status": None},
        {**CALL, "call_index": 7, "model_call_id": "call_2", "response": {"status": "failed"}},
        {"model_call_id": "call_3", "response": None},
    ]
    trajectory, _ = attached({}, calls=calls)
    statuses = {each.model_call_id: each.response_metadata.response_status for each in trajectory.model_calls}
    assert statuses == {"call_0": "incomplete", "call_1": None, "call_2": "completed", "call_3": None}


def test_result_without_rollout_id_is_unchanged():
    result = {"ng_trajectory": "its own"}
    assert _attach_trajectory_record({}, dict(result)) == result
