"""Reconstruct a rollout's trajectory from its row, its result and its captured model calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError

from nemo_gym.capture.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ModelCallRef,
    ObservationGap,
    ToolCall,
)
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.capture.trajectory import TrajectoryModelCall, TrajectoryRecord, TrajectoryToolCall, TrajectoryTurn
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import AGENT_REF_KEY, OBSERVATIONS_KEY, TASK_INDEX_KEY

TASK_ID_KEYS = ("task_id", "problem_id", "instance_id", TASK_INDEX_KEY)


def trajectory_of(row: JsonObject, result: JsonObject, records: Sequence[ModelCallRecord]) -> TrajectoryRecord:
    """Return a rollout's trajectory. Without observations of its agent, use only the row and the response."""
    rollout_id = maybe_rollout_id_from_run_body(row)
    observed, gaps = _observed(result)
    invocations = observed.invocations or [_whole_rollout(row, rollout_id)]
    joined = join_model_call_observations(invocations, records)
    root = invocations[0].invocation_id
    return TrajectoryRecord(
        task_id=_task_id(row),
        rollout_id=rollout_id,
        invocations=invocations,
        turns=[_turn(row, result, joined.model_calls, root)],
        model_calls=joined.model_calls,
        tool_calls=_tool_calls(observed, result, root),
        gaps=[*observed.gaps, *gaps, *joined.gaps],
    )


def _observed(result: JsonObject) -> tuple[AgentObservationBundle, list[ObservationGap]]:
    given = result.get(OBSERVATIONS_KEY)
    nothing = AgentObservationBundle(source="none")
    if given is None:
        return nothing, [ObservationGap(code="no_agent_observations")]
    try:
        return AgentObservationBundle.model_validate(given), []
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        return nothing, [ObservationGap(code="unreadable_agent_observations", detail=problems)]


def _whole_rollout(row: JsonObject, rollout_id: str | None) -> AgentInvocation:
    agent = row.get(AGENT_REF_KEY)
    name = agent.get("name") if isinstance(agent, dict) else None
    return AgentInvocation(invocation_id=rollout_id or "rollout", agent_name=name)


def _task_id(row: JsonObject) -> str | None:
    return next((str(row[key]) for key in TASK_ID_KEYS if row.get(key) is not None), None)


def _turn(row: JsonObject, result: JsonObject, calls: Sequence[TrajectoryModelCall], root: str) -> TrajectoryTurn:
    items = _output(result)
    reasoning = [_texts(item.get("summary")) for item in items if item.get("type") == "reasoning"]
    resolved = result.get("resolved")
    return TrajectoryTurn(
        invocation_id=root,
        task_id=_task_id(row),
        rollout_id=maybe_rollout_id_from_run_body(row),
        turn_no=1,
        timestamp=calls[0].started_at if calls else None,
        question=_question(row),
        answer=next((_texts(item.get("content")) for item in reversed(items) if _is_answer(item)), None),
        reasoning_content="\n".join(text for text in reasoning if text) or None,
        resolved=resolved if isinstance(resolved, bool) else None,
        step_count=len(calls),
        model_calls=[ModelCallRef(model_call_id=call.model_call_id, model_ref=call.model_ref) for call in calls],
    )


def _tool_calls(observed: AgentObservationBundle, result: JsonObject, root: str) -> list[TrajectoryToolCall]:
    items = _output(result)
    outputs = {item.get("call_id"): item.get("output") for item in items if item.get("type") == "function_call_output"}
    if observed.tool_calls:
        calls = [call.model_dump(include=set(ToolCall.model_fields)) for call in observed.tool_calls]
        for call in calls:
            # Agents may leave out what the response has.
            call["output"] = outputs.get(call["tool_call_id"]) if call["output"] is None else call["output"]
            if not observed.invocations:
                call["invocation_id"] = call["invocation_id"] or root
        return [TrajectoryToolCall.model_validate(call) for call in calls]
    return [
        TrajectoryToolCall(
            invocation_id=root,
            tool_call_id=str(item.get("call_id")),
            tool_name=item.get("name"),
            status="completed" if item.get("call_id") in outputs else None,
            output=outputs.get(item.get("call_id")),
        )
        for item in items
        if item.get("type") == "function_call"
    ]


def _output(result: JsonObject) -> list[JsonObject]:
    response = result.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _is_answer(item: JsonObject) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "assistant"


def _question(row: JsonObject) -> str | None:
    """Return the last user message before the model's first turn."""
    params = row.get("responses_create_params")
    given = params.get("input") if isinstance(params, dict) else None
    if isinstance(given, str):
        return given
    said = [item for item in given or [] if isinstance(item, dict) and item.get("role") == "user"]
    return _texts(said[-1].get("content")) if said else None


def _texts(content: object) -> str | None:
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str)) or None


class JoinedModelCalls(NamedTuple):
    """The captured calls with their invocations where known, and the mismatches."""

    model_calls: list[TrajectoryModelCall]
    gaps: list[ObservationGap]


def join_model_call_observations(
    invocations: Sequence[AgentInvocation], records: Sequence[ModelCallRecord]
) -> JoinedModelCalls:
    """Assign each captured call to the invocation that names it, by its own id or by the id of its answer.

    A single invocation also gets the calls that it does not name.
    """
    owners: dict[str, str] = {}
    gaps: list[ObservationGap] = []
    for invocation in invocations:
        for call in invocation.all_model_calls:
            captured = next((record for record in records if _is_named(record, call)), None)
            if captured is not None:
                owners.setdefault(captured.model_call_id, invocation.invocation_id)
                continue
            detail = f"the agent names {call.model_call_id or call.response_id}"
            where = invocation.invocation_id
            gaps.append(ObservationGap(code="model_call_not_captured", detail=detail, invocation_id=where))
    only = invocations[0].invocation_id if len(invocations) == 1 else None
    joined = [
        TrajectoryModelCall.of_record(record, owners.get(record.model_call_id, only))
        for record in sorted(records, key=lambda record: record.started_at)
    ]
    gaps += [
        ObservationGap(
            code="model_call_not_claimed", detail=f"{call.model_call_id} belongs to none of the invocations"
        )
        for call in joined
        if call.invocation_id is None
    ]
    return JoinedModelCalls(joined, gaps)


def _is_named(record: ModelCallRecord, call: ModelCallRef) -> bool:
    if call.model_call_id is not None:
        return call.model_call_id == record.model_call_id
    return call.response_id is not None and call.response_id == record.response_id
