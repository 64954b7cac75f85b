"""Check how deeply the rows of a dataset are nested."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.errors import DataError
from nemo_gym.http.json_depth import DEEPEST_ROW, is_deeper_than


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
