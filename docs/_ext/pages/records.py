"""Fields of the records that a run writes, from the classes that write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from nemo_gym.capture.records import PAYLOADS, ModelCallMetrics, ModelCallRecord
from nemo_gym.rollouts.run_record import Fingerprint, Outcomes, RunRecord
from nemo_gym.rollouts.slurm_step import SlurmStep
from pages.fields import keys_of_model
from pages.markdown import code, prose, table

HEADER = ("field", "type", "meaning")


def run_record() -> str:
    """Return the table of the fields of `x_run.json`."""
    return table(
        HEADER,
        [*_rows(RunRecord), *_rows(Outcomes, "outcomes."), *_rows(SlurmStep, "slurm."), *_rows(Fingerprint, "input.")],
    )


def model_calls() -> str:
    """Return the table of the fields of `ng_model_call_capture`."""
    calls = (row for row in _rows(ModelCallRecord, "calls[].") if row[0].strip("`").rpartition(".")[2] not in PAYLOADS)
    return table(HEADER, [*_rows(ModelCallMetrics, "metrics."), *calls])


def metrics(meanings: Mapping[str, str]) -> str:
    """Return the table of metrics with their meanings."""
    return table(("name", "meaning"), ((code(name), prose(meaning)) for name, meaning in meanings.items()))


def _rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    return ((code(prefix + key.name), code(key.type), prose(key.meaning)) for key in keys_of_model(model))
