"""The rows of a JSONL file that a test's command has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def line_count(path: Path) -> int:
    """Count the complete lines of a file; a missing file counts as empty."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
