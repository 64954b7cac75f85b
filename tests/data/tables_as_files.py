"""Tables as the bytes of a Parquet file, to be served by a fake hub."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pytest


def parquet(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return a Parquet file with these rows, or skip the test without pyarrow."""
    pyarrow = pytest.importorskip("pyarrow", reason="the extra 'hub' is not installed")
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(list(rows)), file)
    return file.getvalue()
