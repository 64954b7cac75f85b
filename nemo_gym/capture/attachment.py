"""Attach a rollout's captured model calls to its result: `ng_model_call_capture` and `ng_trajectory`."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import ValidationError

from nemo_gym.capture.assembly import attach_trajectory_record, problems_of
from nemo_gym.capture.joining import join_model_call_observations
from nemo_gym.capture.observations import AgentObservationBundle, ObservationGap
from nemo_gym.capture.records import PAYLOADS, ModelCallMetrics, ModelCallRecord, available_records
from nemo_gym.capture.store import BEGINNING, CaptureStore, Extent
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import CAPTURE_KEY, OBSERVATIONS_KEY, TRAJECTORY_KEY

logger = logging.getLogger(__name__)

Folder = str | os.PathLike[str]
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
        for key in (OBSERVATIONS_KEY, TRAJECTORY_KEY):
            # Remove the records of an earlier run. Verifiers return them if the row is a result of that run.
            if key in self.row and result.get(key) == self.row[key]:
                del result[key]
        try:
            captured = _captured([self.store], self.rollout_id, self._begun_at)
            _merge(result, self.rollout_id, captured, include_payloads=False)
            attach_trajectory_record(self.row, result, captured.records)
        except Exception:
            # Only log the error, because a failure to attach the record must not fail the rollout.
            logger.exception("rollout %s: the captured calls could not be attached to its result", self.rollout_id)


def merge_model_call_capture_into_record(
    record: JsonObject, dirs: Folder | Iterable[Folder], *, include_payloads: bool = False
) -> JsonObject:
    """Add `ng_model_call_capture` to a result in place, and join its observations with the captured calls in `dirs`.

    A result without a rollout id is not changed.
    """
    rollout_id = maybe_rollout_id_from_run_body(record)
    if rollout_id is None:
        return record
    folders = [dirs] if isinstance(dirs, str | os.PathLike) else dirs
    captured = _captured([CaptureStore(folder) for folder in folders], rollout_id, BEGINNING)
    _merge(record, rollout_id, captured, include_payloads=include_payloads)
    return record


class _Captured(NamedTuple):
    records: list[ModelCallRecord]
    gaps: list[ObservationGap]


def _captured(stores: Iterable[CaptureStore], rollout_id: str, after: Extent) -> _Captured:
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
    return _Captured(records, gaps)


def _merge(record: JsonObject, rollout_id: str, captured: _Captured, *, include_payloads: bool) -> None:
    records, gaps = captured
    if record.get(OBSERVATIONS_KEY) is not None:
        try:
            bundle = AgentObservationBundle.model_validate(record[OBSERVATIONS_KEY])
        except ValidationError as error:
            gaps.append(ObservationGap(code="agent_observation_join_failed", detail=problems_of(error)))
        else:
            if module := NAMING_CALLS.get(bundle.source):
                bundle = importlib.import_module(module).with_named_calls(bundle, records)
            joined = join_model_call_observations(bundle, records)
            record[OBSERVATIONS_KEY] = joined.model_dump(mode="json")
    left_out = set() if include_payloads else set(PAYLOADS)
    capture: JsonObject = {
        "rollout_id": rollout_id,
        "metrics": ModelCallMetrics.over(records).model_dump(),
        "calls": [call.model_dump(mode="json", exclude=left_out) for call in records],
    }
    if gaps:
        capture["gaps"] = [gap.model_dump() for gap in gaps]
    record[CAPTURE_KEY] = capture
