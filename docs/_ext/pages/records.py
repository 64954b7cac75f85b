"""Fields of the records that a run writes, from the classes that write them."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from nemo_gym.capture.observations import AgentInvocation, ObservationGap
from nemo_gym.capture.records import ModelCallMetrics
from nemo_gym.capture.trajectory import (
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
)
from nemo_gym.contract.schema import field_docstrings
from nemo_gym.rollouts.ledger import EVENTS, Event
from nemo_gym.rollouts.run_record import Fingerprint, Outcomes, RunRecord, SlurmStep
from pages.fields import keys_of_model, type_words
from pages.markdown import code, prose, table

HEADER = ("field", "type", "meaning")


def run_record() -> str:
    """Return the table of the fields of `x_run.json`."""
    return table(
        HEADER,
        [*_rows(RunRecord), *_rows(Outcomes, "outcomes."), *_rows(SlurmStep, "slurm."), *_rows(Fingerprint, "input.")],
    )


def ledger() -> str:
    """Return the table of the events of a ledger with their fields, except `at`, which the page describes."""
    rows = [row for name, kind in EVENTS.items() for row in _of_event(name, kind)]
    return table(("event", *HEADER), rows)


def _of_event(name: str, kind: type[Event]) -> Iterator[tuple[str, str, str, str]]:
    yield code(name), "", "", _with_names_of_events(inspect.getdoc(kind) or "")
    types, meanings = typing.get_type_hints(kind), field_docstrings(kind)
    for field in kind._fields:
        if field != "at":
            yield "", code(field), code(type_words(types[field])), _with_names_of_events(meanings.get(field, ""))


def _with_names_of_events(text: str) -> str:
    """Return a docstring with the names of events in place of those of their classes."""
    names = {kind.__name__: name for name, kind in EVENTS.items()}
    return prose(re.sub(r"(?<=`)\w+(?=`)", lambda found: names.get(found[0], found[0]), text))


def call_sums() -> str:
    """Return the table of the fields of `ng_model_call_capture`."""
    return table(HEADER, [*_rows(ModelCallMetrics, "metrics."), *_rows(ObservationGap, "gaps[].")])


def trajectory() -> str:
    """Return the table of the fields of `ng_trajectory`."""
    lists = {
        "invocations": AgentInvocation, "turns": TrajectoryTurn, "tool_calls": TrajectoryToolCall,
        "model_calls": TrajectoryModelCall,
    }  # fmt: skip
    parts = {"response_metadata": TrajectoryResponseMetadata, "token_stats": TrajectoryTokenStats}
    rows = [row for name, model in lists.items() for row in _rows(model, f"{name}[].")]
    inner = [row for name, model in parts.items() for row in _rows(model, f"model_calls[].{name}.")]
    head = [row for row in _rows(TrajectoryRecord) if row[0].strip("`") not in lists]
    return table(HEADER, [*head, *rows, *inner])


def metrics(meanings: Mapping[str, str]) -> str:
    """Return the table of metrics with their meanings."""
    return table(("name", "meaning"), ((code(name), prose(meaning)) for name, meaning in meanings.items()))


def _rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    return ((code(prefix + key.name), code(key.type), prose(key.meaning)) for key in keys_of_model(model))
