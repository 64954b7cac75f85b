"""The trajectory of a result whose captured calls come from the published package or a test."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.capture.attachment import attach_trajectory_record
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at


def attach_trajectory_of_captured_calls(row: JsonObject, result: JsonObject) -> JsonObject:
    """Set `ng_trajectory` of a result from the calls in its `ng_model_call_capture`, and return the result."""
    calls = object_at(result, "ng_model_call_capture").get("calls", ())
    return attach_trajectory_record(row, result, [_record(*each) for each in enumerate(calls)])


def _record(position: int, call: Mapping[str, object]) -> ModelCallRecord:
    """Return a call's record. If it lacks its index or status, take its position and the status in its response."""
    status = call.get("response_status") or object_at(call, "response").get("status")
    return ModelCallRecord.model_validate({"call_index": position, **call, "response_status": status})
