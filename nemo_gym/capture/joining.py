"""Match captured model calls with the agent invocations that made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nemo_gym.capture.observations import AgentInvocation, ModelCallRef, ObservationGap
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.capture.trajectory import TrajectoryModelCall

CALL_NOT_CAPTURED = "model_call_not_captured"
CALL_NOT_CLAIMED = "model_call_not_claimed"


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
            named = call.model_call_id or call.response_id
            gaps.append(_gap(CALL_NOT_CAPTURED, f"the agent names {named}", invocation.invocation_id))
    only = invocations[0].invocation_id if len(invocations) == 1 else None
    joined = [
        TrajectoryModelCall.of_record(record, owners.get(record.model_call_id, only))
        for record in sorted(records, key=lambda record: record.started_at)
    ]
    gaps += [
        _gap(CALL_NOT_CLAIMED, f"{call.model_call_id} belongs to none of the invocations")
        for call in joined
        if call.invocation_id is None
    ]
    return JoinedModelCalls(joined, gaps)


def _is_named(record: ModelCallRecord, call: ModelCallRef) -> bool:
    if call.model_call_id is not None:
        return call.model_call_id == record.model_call_id
    return call.response_id is not None and call.response_id == record.response_id


def _gap(code: str, detail: str, invocation_id: str | None = None) -> ObservationGap:
    return ObservationGap(code=code, detail=detail, invocation_id=invocation_id)
