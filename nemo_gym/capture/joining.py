"""Join an agent's observations with the captured model calls that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nemo_gym.capture.observations import (
    AgentInvocation,
    AgentObservation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
)
from nemo_gym.capture.records import ModelCallRecord

AMBIGUOUS = "model_call_reference_ambiguous"
UNMATCHED = "model_call_reference_unmatched"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"
CAPTURE_PREFIX = "capture:"
COMPACTION_PREFIXES = ("model_calls:", "before_model_call:", "after_model_call:")


def join_model_call_observations(
    bundle: AgentObservationBundle, records: Sequence[ModelCallRecord]
) -> AgentObservationBundle:
    """Complete the references to model calls from the captured calls, and return the new observations.

    A call belongs to the invocation that names it. Gaps list the references that name no call, several calls or a
    call of another invocation, and the calls without an owner. They replace the gaps of an earlier join.
    """
    join = _Join(records)
    # Join the invocations first, because compactions may only name calls that their invocation owns.
    joined = [join.invocation(each) if isinstance(each, AgentInvocation) else each for each in bundle.records]
    joined = [join.compaction(each) if isinstance(each, ContextCompactionObservation) else each for each in joined]
    kept = [gap for gap in bundle.gaps if not _is_of_a_join(gap)]
    gaps = unique_gaps([*kept, *join.gaps, *join.unowned()])
    return bundle.model_copy(update={"records": joined, "gaps": gaps})


def unique_gaps(gaps: Sequence[ObservationGap]) -> list[ObservationGap]:
    return list({(gap.code, gap.invocation_id, gap.detail): gap for gap in reversed(gaps)}.values())[::-1]


def _is_of_a_join(gap: ObservationGap) -> bool:
    if gap.code == UNOWNED:
        # Keep a gap without these prefixes, because an agent may have reported it for calls that it cannot name.
        return (gap.detail or "").startswith((CAPTURE_PREFIX, *COMPACTION_PREFIXES))
    return gap.code in (AMBIGUOUS, UNMATCHED, CONFLICT)


class _Join:
    """The state of one join: the owners of calls and the gaps that have been found so far."""

    def __init__(self, records: Sequence[ModelCallRecord]) -> None:
        self.gaps: list[ObservationGap] = []
        self._records = records
        self._owners: dict[int, str] = {}
        """The id of the invocation that owns each call, by the call's index in `records`."""

    def invocation(self, invocation: AgentInvocation) -> AgentInvocation:
        calls = [self._owned(ref, invocation.invocation_id) for ref in invocation.model_calls]
        return invocation.model_copy(update={"model_calls": calls})

    def compaction(self, compaction: ContextCompactionObservation) -> AgentObservation:
        own = compaction.invocation_id
        of_summary, of_before, of_after = COMPACTION_PREFIXES
        before, after = compaction.before_model_call, compaction.after_model_call
        return compaction.model_copy(
            update={
                "model_calls": [self._named(ref, own, of_summary) for ref in compaction.model_calls],
                "before_model_call": before and self._named(before, own, of_before),
                "after_model_call": after and self._named(after, own, of_after),
            }
        )

    def unowned(self) -> Iterator[ObservationGap]:
        """Yield a gap for each captured call that belongs to no invocation."""
        for position, record in enumerate(self._records):
            if position not in self._owners:
                name = record.model_call_id or record.response_id or f"call {record.call_index}"
                yield ObservationGap(code=UNOWNED, detail=f"{CAPTURE_PREFIX}{name}")

    def _owned(self, ref: ModelCallRef, invocation_id: str) -> ModelCallRef:
        position = self._position(ref, invocation_id, "")
        if position is None:
            return ref
        if self._owners.setdefault(position, invocation_id) != invocation_id:
            return self._with_gap(CONFLICT, ref, invocation_id, "")
        return self._completed(ref, position)

    def _named(self, ref: ModelCallRef, invocation_id: str, prefix: str) -> ModelCallRef:
        position = self._position(ref, invocation_id, prefix)
        if position is None:
            return ref
        owner = self._owners.get(position)
        if owner != invocation_id:
            return self._with_gap(UNOWNED if owner is None else CONFLICT, ref, invocation_id, prefix)
        return self._completed(ref, position)

    def _position(self, ref: ModelCallRef, invocation_id: str, prefix: str) -> int | None:
        found = [position for position, record in enumerate(self._records) if _is_named(record, ref)]
        if len(found) == 1:
            return found[0]
        self._with_gap(AMBIGUOUS if found else UNMATCHED, ref, invocation_id, prefix)
        return None

    def _with_gap(self, code: str, ref: ModelCallRef, invocation_id: str, prefix: str) -> ModelCallRef:
        model = None if ref.model_ref is None else ref.model_ref.name
        names = {"model_call_id": ref.model_call_id, "model": model, "response_id": ref.response_id}
        detail = ", ".join(f"{name}={value}" for name, value in names.items() if value is not None)
        self.gaps.append(ObservationGap(code=code, invocation_id=invocation_id, detail=prefix + detail))
        return ref

    def _completed(self, ref: ModelCallRef, position: int) -> ModelCallRef:
        record = self._records[position]
        return ModelCallRef(
            model_call_id=record.model_call_id or ref.model_call_id,
            model_ref=record.model_ref or ref.model_ref,
            response_id=record.response_id or ref.response_id,
        )


def _is_named(record: ModelCallRecord, ref: ModelCallRef) -> bool:
    """Return whether a call matches all ids that a reference contains."""
    pairs = (
        (ref.model_call_id, record.model_call_id),
        (ref.model_ref, record.model_ref),
        (ref.response_id, record.response_id),
    )
    return all(named is None or named == recorded for named, recorded in pairs)
