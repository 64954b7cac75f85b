"""Attach a rollout's model calls to its result: `ng_model_call_capture` and `ng_trajectory`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from nemo_gym.capture.reconstruction import trajectory_of
from nemo_gym.capture.records import ModelCallMetrics, ModelCallRecord, read_model_call_records
from nemo_gym.capture.store import BEGINNING, CaptureStore
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body
from nemo_gym.jsonl import JsonObject

logger = logging.getLogger(__name__)

CAPTURE_KEY = "ng_model_call_capture"
TRAJECTORY_KEY = "ng_trajectory"

Folder = str | os.PathLike[str]


class RolloutCapture:
    """The calls that one rollout makes from now on, without those of an earlier run with its id."""

    def __init__(self, store: CaptureStore, row: JsonObject) -> None:
        self.store = store
        self.row = row
        self.rollout_id = maybe_rollout_id_from_run_body(row)
        self._begun_at = store.extent(self.rollout_id) if self.rollout_id else BEGINNING

    def attach(self, result: JsonObject) -> None:
        """Add the recorded calls to the rollout's result, and a trajectory unless the agent reported one."""
        if self.rollout_id is None:
            return
        try:
            records = read_model_call_records(self.store, self.rollout_id, self._begun_at)
            gaps = self.store.gaps(self.rollout_id, self._begun_at) or ([] if records else [NO_CALLS])
            result[CAPTURE_KEY] = _capture_of(self.rollout_id, records, gaps)
            if result.get(TRAJECTORY_KEY) == self.row.get(TRAJECTORY_KEY):
                result[TRAJECTORY_KEY] = trajectory_of(self.row, result, records).model_dump(mode="json")
        except Exception:
            # A failure to attach the record must not fail the rollout.
            logger.exception("rollout %s: the captured calls could not be attached to its result", self.rollout_id)


NO_CALLS = {"code": "no_model_calls", "detail": "no model server recorded a call of this rollout"}


def merge_model_call_capture_into_record(
    record: JsonObject, dirs: Folder | Iterable[Folder], *, include_payloads: bool = False
) -> JsonObject:
    """Add `ng_model_call_capture` to a result in place, from the stores in these folders.

    A result without a rollout id, or without recorded calls, is not changed.
    """
    rollout_id = maybe_rollout_id_from_run_body(record)
    if rollout_id is None:
        return record
    stores = [CaptureStore(folder) for folder in ([dirs] if isinstance(dirs, str | os.PathLike) else dirs)]
    records = [call for store in stores for call in read_model_call_records(store, rollout_id)]
    gaps = [gap for store in stores for gap in store.gaps(rollout_id)]
    if records or gaps:
        record[CAPTURE_KEY] = _capture_of(rollout_id, records, gaps, include_payloads=include_payloads)
    return record


def attach_trajectory_record(
    row: JsonObject, result: JsonObject, records: Iterable[ModelCallRecord] = ()
) -> JsonObject:
    """Add `ng_trajectory` to a result that lacks it; without `records`, use the calls attached to the result."""
    if TRAJECTORY_KEY not in result:
        attached = (result.get(CAPTURE_KEY) or {}).get("calls", ())
        calls = list(records) or [ModelCallRecord.model_validate(call) for call in attached]
        result[TRAJECTORY_KEY] = trajectory_of(row, result, calls).model_dump(mode="json")
    return result


def _capture_of(
    rollout_id: str, records: list[ModelCallRecord], gaps: list[JsonObject], *, include_payloads: bool = False
) -> JsonObject:
    calls = sorted(records, key=lambda record: record.started_at)
    capture: JsonObject = {
        "rollout_id": rollout_id,
        "metrics": ModelCallMetrics.over(calls).model_dump(),
        "calls": [call.line(include_payloads=include_payloads) for call in calls],
    }
    return capture | ({"gaps": gaps} if gaps else {})
