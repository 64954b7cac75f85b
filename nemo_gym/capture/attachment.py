"""Attach a rollout's captured model calls to its result: `ng_model_call_capture` and `ng_trajectory`."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.capture.joining import join_model_call_observations, unique_gaps
from nemo_gym.capture.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ToolCallObservation,
)
from nemo_gym.capture.records import PAYLOADS, ModelCallMetrics, ModelCallRecord, available_records
from nemo_gym.capture.store import BEGINNING, CaptureStore, Extent
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
from nemo_gym.schemas.row import Row
from nemo_gym.text import problems_in

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)

MOST_PROBLEMS = 3

NAMING_CALLS = {"claude_code": "nemo_gym.published.claude_code"}
"""The modules that add references to model calls to an agent's observations, by the agent's `source`."""


class RolloutCapture:
    """The model calls that a rollout makes after this object is created. Earlier calls with its id are excluded."""

    def __init__(self, store: CaptureStore, row: JsonObject) -> None:
        self.store = store
        self.row = row
        self.rollout_id = maybe_rollout_id_from_run_body(row)
        self._begun_at = store.extent(self.rollout_id) if self.rollout_id else BEGINNING

    def attach(self, result: JsonObject) -> None:
        """Add the recorded calls and the trajectory to the rollout's result."""
        if self.rollout_id is None:
            return
        for key in ("ng_agent_observations", "ng_trajectory"):
            # Remove the records of an earlier run. Verifiers return them if the row is a result of that run.
            if key in self.row and result.get(key) == self.row[key]:
                del result[key]
        try:
            captured = captured_calls([self.store], self.rollout_id, self._begun_at)
            add_calls(result, self.rollout_id, captured, include_payloads=False)
            attach_trajectory_record(self.row, result, captured.records)
        except Exception:
            # Only log the error, because a failure to attach the record must not fail the rollout.
            logger.exception("rollout %s: the captured calls could not be attached to its result", self.rollout_id)


class Captured(NamedTuple):
    """The captured calls of a rollout, and the gaps in them."""

    records: list[ModelCallRecord]
    gaps: list[ObservationGap]


def captured_calls(stores: Iterable[CaptureStore], rollout_id: str, after: Extent) -> Captured:
    """Return the calls that these stores have of a rollout, without those before `after`."""
    records: list[ModelCallRecord] = []
    gaps: list[ObservationGap] = []
    for store in stores:
        try:
            found, damaged = available_records(store, rollout_id, after)
            reasons = store.reasons(rollout_id, after)
        except OSError as error:
            gaps.append(ObservationGap(code="model_call_capture_unreadable", detail=str(error)))
            continue
        records += found
        if damaged:
            gaps.append(ObservationGap(code="model_call_capture_records_unreadable", detail=f"count={damaged}"))
        if reasons is not None:
            detail = "; ".join(reasons) or None
            gaps.append(ObservationGap(code="model_call_capture_incomplete", detail=detail))
    if not records:
        gaps.append(ObservationGap(code="model_call_capture_no_records"))
    return Captured(records, gaps)


def add_calls(record: JsonObject, rollout_id: str, captured: Captured, *, include_payloads: bool) -> None:
    """Set `ng_model_call_capture` of a result, and join its observations with the captured calls."""
    records, gaps = captured
    bundle, problems = _observed(record, "agent_observation_join_failed")
    gaps += problems
    if bundle is not None:
        if module := NAMING_CALLS.get(bundle.source):
            bundle = importlib.import_module(module).with_named_calls(bundle, records)
        record["ng_agent_observations"] = join_model_call_observations(bundle, records).model_dump(mode="json")
    left_out = set() if include_payloads else set(PAYLOADS)
    capture: dict[str, object] = {
        "rollout_id": rollout_id,
        "metrics": ModelCallMetrics.over(records).model_dump(),
        "calls": [call.model_dump(mode="json", exclude=left_out) for call in records],
    }
    if gaps:
        capture["gaps"] = [gap.model_dump() for gap in gaps]
    record["ng_model_call_capture"] = capture


def attach_trajectory_record(row: JsonObject, result: JsonObject, records: Iterable[ModelCallRecord]) -> JsonObject:
    """Set `ng_trajectory` of a result, and move the captured calls of `ng_model_call_capture` into it.

    The calls are given as `records`, because those of `ng_model_call_capture` may lack their payloads. A result
    without a rollout id is not changed.
    """
    capture = object_at(result, "ng_model_call_capture")
    rollout_id = maybe_rollout_id_from_run_body(row) or capture.get("rollout_id")
    if not isinstance(rollout_id, str):
        return result
    empty = TrajectoryRecord(task_id=Row(row).task_id or rollout_id, rollout_id=rollout_id)
    base, gaps = _produced(result, empty)
    known, problems = _observed(result, "agent_observations_invalid")
    observed = known or AgentObservationBundle(source="none")
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
    result["ng_trajectory"] = dumped
    capture.pop("calls", None)
    return result


def _produced(result: Mapping[str, object], empty: TrajectoryRecord) -> tuple[TrajectoryRecord, list[ObservationGap]]:
    """Return the usable part of the trajectory that the agent attached, and the gaps for the rest."""
    given = result.get("ng_trajectory")
    if given is None:
        return empty, []
    try:
        produced = TrajectoryRecord.model_validate(given)
    except ValidationError as error:
        return empty, [ObservationGap(code="producer_trajectory_invalid", detail=problems_in(error, MOST_PROBLEMS))]
    if (produced.task_id, produced.rollout_id) == (empty.task_id, empty.rollout_id):
        return produced, []
    ids = {"task_id": empty.task_id, "rollout_id": empty.rollout_id}
    turns = [turn.model_copy(update=ids) for turn in produced.turns]
    detail = f"task {produced.task_id}, rollout {produced.rollout_id}"
    return empty.model_copy(update={"turns": turns}), [
        ObservationGap(code="producer_trajectory_identity_mismatch", detail=detail)
    ]


def _observed(
    result: Mapping[str, object], problem: str
) -> tuple[AgentObservationBundle | None, list[ObservationGap]]:
    """Return the observations of the agent, or a gap with the code `problem` if they are invalid."""
    given = result.get("ng_agent_observations")
    try:
        return None if given is None else AgentObservationBundle.model_validate(given), []
    except ValidationError as error:
        return None, [ObservationGap(code=problem, detail=problems_in(error, MOST_PROBLEMS))]


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


def _known(base: BaseModel, top: BaseModel) -> Mapping[str, object]:
    fields: dict[str, object] = dict(base)
    for name, value in top:
        known = fields.get(name)
        if isinstance(value, BaseModel) and isinstance(known, BaseModel):
            fields[name] = _known(known, value)
        elif value is not None and value != [] and (name, value) != ("status", "unknown"):
            fields[name] = value
    return fields
