"""Files of public datasets. They are not in the repository but next to it, in `../shared/data`."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data"


def real_file(*names: str) -> Path:
    """Return the path of a file or folder, such as `real_file("gsm8k", "test_first200.jsonl")`, or skip the test."""
    path = FOLDER.joinpath(*names)
    if not path.exists():
        pytest.skip(f"the public data {'/'.join(names)} is not in ../shared/data")
    return path
