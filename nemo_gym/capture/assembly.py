"""Assemble `ng_trajectory` from the agent's own trajectory, its observations and the captured model calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.capture.joining import unique_gaps
from nemo_gym.capture.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ToolCallObservation,
)
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.capture.trajectory import (
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
)
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at
from nemo_gym.schemas.row import CAPTURE_KEY, OBSERVATIONS_KEY, TRAJECTORY_KEY, Row

Model = TypeVar("Model", bound=BaseModel)


def attach_trajectory_record(
    row: JsonObject, result: JsonObject, records: Iterable[ModelCallRecord] | None = None
) -> JsonObject:
    """Set `ng_trajectory` of a result, and move the captured calls of `ng_model_call_capture` into it.

    If the calls are given as `records`, they replace those of `ng_model_call_capture`, whose payloads may be missing.
    A result without a rollout id is not changed.
    """
    capture = object_at(result, CAPTURE_KEY)
    rollout_id = maybe_rollout_id_from_run_body(row) or capture.get("rollout_id")
    if not isinstance(rollout_id, str):
        return result
    empty = TrajectoryRecord(task_id=Row(row).task_id or rollout_id, rollout_id=rollout_id)
    base, gaps = _produced(result, empty)
    observed, problems = _observed(result)
    if records is None:
        records = [ModelCallRecord.model_validate(call) for call in capture.get("calls", ())]
    reported = [ObservationGap.model_validate(gap) for gap in capture.get("gaps", ())]
    invocations = _laid_over(base.invocations, observed.of_type(AgentInvocation), key=lambda each: each.invocation_id)
    trajectory = TrajectoryRecord(
        task_id=base.task_id,
        rollout_id=rollout_id,
        invocations=invocations,
        turns=sorted(base.turns, key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no)),
        model_calls=_laid_over(base.model_calls, map(_model_call, records), key=lambda each: each.model_call_id),
        tool_calls=_tool_calls(base.tool_calls, observed.of_type(ToolCallObservation), invocations),
    )
    missing = _missing(trajectory)
    trajectory.gaps = unique_gaps([*base.gaps, *gaps, *observed.gaps, *problems, *reported, *missing])
    # Leave out the payloads, because they are long, and are JSON already.
    dumped = trajectory.model_dump(mode="json", exclude={"model_calls": {"__all__": {"request", "response"}}})
    for call, fields in zip(trajectory.model_calls, dumped["model_calls"], strict=True):
        fields |= {"request": call.request, "response": call.response}
    result[TRAJECTORY_KEY] = dumped
    capture.pop("calls", None)
    return result


def _produced(result: JsonObject, empty: TrajectoryRecord) -> tuple[TrajectoryRecord, list[ObservationGap]]:
    """Return the usable part of the trajectory that the agent attached, and the gaps for the rest."""
    given = result.get(TRAJECTORY_KEY)
    if given is None:
        return empty, []
    try:
        produced = TrajectoryRecord.model_validate(given)
    except ValidationError as error:
        return empty, [ObservationGap(code="producer_trajectory_invalid", detail=problems_of(error))]
    if (produced.task_id, produced.rollout_id) == (empty.task_id, empty.rollout_id):
        return produced, []
    ids = {"task_id": empty.task_id, "rollout_id": empty.rollout_id}
    turns = [turn.model_copy(update=ids) for turn in produced.turns]
    detail = f"task {produced.task_id}, rollout {produced.rollout_id}"
    return empty.model_copy(update={"turns": turns}), [
        ObservationGap(code="producer_trajectory_identity_mismatch", detail=detail)
    ]


def _observed(result: JsonObject) -> tuple[AgentObservationBundle, list[ObservationGap]]:
    nothing = AgentObservationBundle(source="none")
    given = result.get(OBSERVATIONS_KEY)
    if given is None:
        return nothing, []
    try:
        return AgentObservationBundle.model_validate(given), []
    except ValidationError as error:
        return nothing, [ObservationGap(code="agent_observations_invalid", detail=problems_of(error))]


def problems_of(error: ValidationError) -> str:
    """Return the first problems of a validation error in one line."""
    found = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
    return "; ".join(problem.removeprefix(": ") for problem in found)


def _missing(trajectory: TrajectoryRecord) -> Iterator[ObservationGap]:
    if not trajectory.model_calls:
        yield ObservationGap(code="model_calls_unavailable")
    if not trajectory.turns:
        yield ObservationGap(code="turns_unavailable")
    if not trajectory.invocations:
        yield ObservationGap(code="conversation_unavailable")
    for invocation in trajectory.invocations:
        if not invocation.conversation:
            yield ObservationGap(code="conversation_unavailable", invocation_id=invocation.invocation_id)


def _model_call(record: ModelCallRecord) -> TrajectoryModelCall:
    return TrajectoryModelCall(
        model_call_id=record.model_call_id,
        started_at=record.started_at,
        completed_at=record.completed_at,
        duration_ms=record.latency_total_ms,
        request=record.request_raw if record.request is None else record.request,
        response=record.response_raw if record.response is None else record.response,
        response_metadata=TrajectoryResponseMetadata.model_validate(
            {name: getattr(record, name) for name in TrajectoryResponseMetadata.model_fields}
        ),
        token_stats=TrajectoryTokenStats(
            prompt_tokens=record.tokens_in,
            completion_tokens=record.tokens_out,
            reasoning_tokens=record.tokens_reasoning,
            total_tokens=record.tokens_total,
            cached_tokens=record.cached_tokens,
        ),
    )


def _tool_calls(
    produced: Iterable[TrajectoryToolCall],
    observed: Iterable[ToolCallObservation],
    invocations: Iterable[AgentInvocation],
) -> list[TrajectoryToolCall]:
    outputs = {
        (invocation.invocation_id, item["call_id"]): item["output"]
        for invocation in invocations
        for item in (item.model_dump(mode="json") for item in invocation.conversation)
        if "call_id" in item and "output" in item
    }
    with_outputs = (
        TrajectoryToolCall(**call.model_dump(), output=outputs.get((call.invocation_id, call.tool_call_id)))
        for call in observed
    )
    return _laid_over(produced, with_outputs, key=lambda each: (each.invocation_id, each.tool_call_id))


def _laid_over(
    bases: Iterable[Model], tops: Iterable[Model], *, key: Callable[[Model], Hashable | None]
) -> list[Model]:
    """Return the models of both lists. Two models with the same key are merged, and known values of `tops` win."""
    models = list(bases)
    positions = {key(model): position for position, model in enumerate(models)}
    for top in tops:
        position = None if key(top) is None else positions.get(key(top))
        if position is None:
            positions[key(top)] = len(models)
            models.append(top)
        else:
            models[position] = _merged(models[position], top)
    return models


def _merged(base: Model, top: Model) -> Model:
    """Return a model with the known values of `top`, and with the values of `base` for the other fields."""
    try:
        return type(top).model_validate(_known(base, top))
    except ValidationError:
        # Keep `top`, because the merged model is invalid, for example if times from two clocks contradict each other.
        return top


def _known(base: BaseModel, top: BaseModel) -> JsonObject:
    fields: JsonObject = dict(base)
    for name, value in top:
        known = fields.get(name)
        if isinstance(value, BaseModel) and isinstance(known, BaseModel):
            fields[name] = _known(known, value)
        elif value is not None and value != [] and (name, value) != ("status", "unknown"):
            fields[name] = value
    return fields
