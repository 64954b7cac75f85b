"""Tests of joining an agent's observations with the captured model calls."""

from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    ToolCallObservation,
    join_model_call_observations,
)
from tests.each_case import each_case

SERVER = {"type": "responses_api_models", "name": "policy"}
OTHER = {"type": "responses_api_models", "name": "other"}


def record(number, response=None, server=SERVER):
    return ModelCallRecord(
        call_index=number, model_call_id=f"call_{number}", model_ref=server, response_id=response or f"resp_{number}"
    )


def ref(number):
    return ModelCallRef(model_call_id=f"call_{number}")


def by_response(number, server=SERVER):
    return ModelCallRef(model_ref=server, response_id=f"resp_{number}")


def whole(number):
    return ModelCallRef(model_call_id=f"call_{number}", model_ref=SERVER, response_id=f"resp_{number}")


def bundle_of(*records, gaps=()):
    return AgentObservationBundle(source="agent", records=list(records), gaps=list(gaps))


def main(*refs):
    return AgentInvocation(invocation_id="main", model_calls=list(refs))


def gaps_of(bundle):
    return [(gap.code.removeprefix("model_call_"), gap.invocation_id, gap.detail) for gap in bundle.gaps]


@each_case(
    ("named", "found", "code"),
    [
        (ref(1), whole(1), None),
        (by_response(1), whole(1), None),
        (whole(1), whole(1), None),
        (ModelCallRef(model_call_id="call_1", response_id="resp_2"), None, "reference_unmatched"),
        (ModelCallRef(model_call_id="call_1", model_ref=OTHER), None, "reference_unmatched"),
        (by_response(1, OTHER), None, "reference_unmatched"),
        (ref(9), None, "reference_unmatched"),
        (by_response(3), None, "reference_ambiguous"),
    ],
)
def test_reference_is_completed_from_its_only_match(named, found, code):
    joined = join_model_call_observations(
        bundle_of(main(named)), [record(1), record(2), record(3), record(4, "resp_3")]
    )
    assert joined.records[0].model_calls == [found or named]
    codes = [gap.code for gap in joined.gaps if gap.invocation_id == "main"]
    assert codes == ([f"model_call_{code}"] if code else [])


def test_call_belongs_to_the_first_invocation_naming_it():
    helper = AgentInvocation(invocation_id="helper", model_calls=[ref(1), ref(2)])
    joined = join_model_call_observations(bundle_of(main(ref(1)), helper), [record(1), record(2), record(3)])
    assert [each.model_calls for each in joined.records] == [[whole(1)], [ref(1), whole(2)]]
    assert gaps_of(joined) == [
        ("reference_conflict", "helper", "model_call_id=call_1"),
        ("ownership_unavailable", None, "capture:call_3"),
    ]


def test_calls_of_a_compaction_belong_to_its_invocation():
    compaction = ContextCompactionObservation(
        invocation_id="main", before_model_call=by_response(1), model_calls=[ref(2), ref(3)], after_model_call=ref(9)
    )
    helper = AgentInvocation(invocation_id="helper", model_calls=[ref(2)])
    # The compaction is reported before the invocation that owns its calls.
    joined = join_model_call_observations(
        bundle_of(compaction, main(ref(1)), helper), [record(1), record(2), record(3)]
    )
    assert joined.records[0].before_model_call == whole(1)
    assert joined.records[0].model_calls == [ref(2), ref(3)]
    assert gaps_of(joined) == [
        ("reference_conflict", "main", "model_calls:model_call_id=call_2"),
        ("ownership_unavailable", "main", "model_calls:model_call_id=call_3"),
        ("reference_unmatched", "main", "after_model_call:model_call_id=call_9"),
        ("ownership_unavailable", None, "capture:call_3"),
    ]


def test_second_join_replaces_the_gaps():
    own = ObservationGap(code="model_call_ownership_unavailable", detail="the CLI names no calls")
    tool = ToolCallObservation(invocation_id="main", tool_call_id="t")
    given = bundle_of(main(ref(1), ref(9), ref(9)), tool, gaps=[own])
    first = join_model_call_observations(given, [record(1), record(2)])
    assert [code for code, *_ in gaps_of(first)] == [
        "ownership_unavailable", "reference_unmatched", "ownership_unavailable",
    ]  # fmt: skip
    assert first.gaps[0] == own
    assert first.records[1] == tool
    assert join_model_call_observations(first, [record(1), record(2)]) == first
    assert join_model_call_observations(first, [record(1), record(9)]).gaps == [own]
    assert given.gaps == [own]
    assert given.records[0].model_calls[0] == ref(1)
