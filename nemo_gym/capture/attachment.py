"""What a result says of its rollout's model calls: `ng_model_call_capture` and `ng_trajectory`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from nemo_gym.capture.records import ModelCallMetrics, ModelCallRecord
from nemo_gym.capture.store import BEGINNING, CaptureStore, Extent
from nemo_gym.capture.telling import trajectory_of
from nemo_gym.http.correlation import maybe_rollout_id_from_run_body

logger = logging.getLogger(__name__)

CAPTURE_KEY = "ng_model_call_capture"
TRAJECTORY_KEY = "ng_trajectory"

Row = dict[str, Any]
Folder = str | os.PathLike[str]


class RolloutCapture:
    """The calls that one rollout makes from now on; what an earlier run kept under its id is left alone."""

    def __init__(self, store: CaptureStore, row: Mapping[str, Any]) -> None:
        self.store = store
        self.row = row
        self.rollout_id = maybe_rollout_id_from_run_body(row)
        self._begun_at = store.extent(self.rollout_id) if self.rollout_id else BEGINNING

    def attach(self, result: Row) -> None:
        """Add to the rollout's result what was recorded of it; a trajectory that the agent told itself stays."""
        if self.rollout_id is None:
            return
        try:
            records = _records(self.store, self.rollout_id, self._begun_at)
            gaps = _gaps(self.store, self.rollout_id, self._begun_at) or ([] if records else [NO_CALLS])
            result[CAPTURE_KEY] = _told(self.rollout_id, records, gaps)
            if result.get(TRAJECTORY_KEY) == self.row.get(TRAJECTORY_KEY):
                result[TRAJECTORY_KEY] = trajectory_of(self.row, result, records).model_dump(mode="json")
        except Exception:
            # A record of the rollout must not cost the rollout.
            logger.exception("the capture of rollout %s cannot be attached to its result", self.rollout_id)


NO_CALLS = {"code": "no_model_calls", "detail": "no model server recorded a call of this rollout"}


def merge_model_call_capture_into_record(
    record: Row, dirs: Folder | Iterable[Folder], *, include_payloads: bool = False
) -> Row:
    """Add `ng_model_call_capture` to a result, from the stores in these folders; the result itself is changed.

    A result that names no rollout, or one of which nothing is recorded, stays as it is.
    """
    rollout_id = maybe_rollout_id_from_run_body(record)
    if rollout_id is None:
        return record
    stores = [CaptureStore(folder) for folder in ([dirs] if isinstance(dirs, str | os.PathLike) else dirs)]
    records = [call for store in stores for call in _records(store, rollout_id)]
    gaps = [gap for store in stores for gap in _gaps(store, rollout_id)]
    if records or gaps:
        record[CAPTURE_KEY] = _told(rollout_id, records, gaps, include_payloads=include_payloads)
    return record


def attach_trajectory_record(row: Mapping[str, Any], result: Row, records: Iterable[ModelCallRecord] = ()) -> Row:
    """Add `ng_trajectory` to a result that has none; without `records`, of the calls that are attached to it."""
    if TRAJECTORY_KEY not in result:
        attached = (result.get(CAPTURE_KEY) or {}).get("calls", ())
        calls = list(records) or [ModelCallRecord.model_validate(call) for call in attached]
        result[TRAJECTORY_KEY] = trajectory_of(row, result, calls).model_dump(mode="json")
    return result


def _records(store: CaptureStore, rollout_id: str, after: Extent = BEGINNING) -> list[ModelCallRecord]:
    return [ModelCallRecord.model_validate(call) for call in store.read_available(rollout_id, after)]


def _gaps(store: CaptureStore, rollout_id: str, after: Extent = BEGINNING) -> list[dict[str, Any]]:
    torn = [{"code": "torn_line", "detail": None}] * store.torn_lines(rollout_id, after)
    lacking = [{"code": "capture_incomplete", "detail": reason or None} for reason in store.reasons(rollout_id, after)]
    return [*torn, *lacking]


def _told(
    rollout_id: str, records: list[ModelCallRecord], gaps: list[dict[str, Any]], *, include_payloads: bool = False
) -> dict[str, Any]:
    calls = sorted(records, key=lambda record: record.started_at)
    told: dict[str, Any] = {
        "rollout_id": rollout_id,
        "metrics": ModelCallMetrics.over(calls).model_dump(),
        "calls": [call.line(include_payloads=include_payloads) for call in calls],
    }
    return told | ({"gaps": gaps} if gaps else {})
