"""Captured model calls, tokens and observations, as code of other packages reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nemo_gym.capture.attachment import add_calls, captured_calls
from nemo_gym.capture.observations import AgentObservationBundle
from nemo_gym.capture.records import ModelCallMetrics, ModelCallRecord, available_records
from nemo_gym.capture.store import BEGINNING, CaptureStore
from nemo_gym.capture.tokens.entry import TokenSource
from nemo_gym.context.rollout_id import maybe_rollout_id_from_run_body
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.responses import Response

Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class AgentEpisode:
    """The answer of an agent with its observations, for agents that return both from one method."""

    response: Response
    observations: AgentObservationBundle


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
    captured = captured_calls([CaptureStore(folder) for folder in folders], rollout_id, BEGINNING)
    add_calls(record, rollout_id, captured, include_payloads=include_payloads)
    return record


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """Return the captured calls of a rollout in the order of the file. Skip damaged lines."""
    return available_records(store, rollout_id).records


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> Mapping[str, object]:
    """Return the number of captured calls of a rollout, and their total tokens and latency in milliseconds."""
    return ModelCallMetrics.over(read_model_call_records(store, rollout_id)).model_dump()


def retire_rollout_token_capture(rollout_id: str, source: TokenSource) -> None:
    """Delete the token record of a rollout. Call this after the tokens were added to the result."""
    source.drop(rollout_id)
