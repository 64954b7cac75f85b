"""Checks of a row that collections share with the preparation of datasets."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.http.json_depth import DEEPEST_ROW, is_deeper_than
from nemo_gym.schemas.row import AGENT_REF_KEY, Row


def check_depth(raw: bytes, path: Path, number: int, accepted: int) -> None:
    """Raise `DataError`, with the line, if a row is nested too deeply for its servers or for serialization."""
    most = min(accepted, DEEPEST_ROW)
    if is_deeper_than(raw, most):
        advice = "Flatten the row, or write a part of it as text."
        if most < DEEPEST_ROW:
            advice += (
                f" Or set max_request_depth, up to {DEEPEST_ROW}, in the blocks of its agent and resources server."
            )
        raise DataError(f"{path}:{number}: brackets nest more than {most} deep. {advice}")


def agent_ref_problem(row: Row) -> str | None:
    """Return an error message for an `agent_ref` that is not `{name: …}`, or None."""
    reference = row.fields.get(AGENT_REF_KEY)
    if reference is not None and row.agent is None:
        return f"{AGENT_REF_KEY} must be {{name: AGENT}}, found {reference!r}."
    return None
