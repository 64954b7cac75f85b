"""How long each test file takes: recorded in `tests/costs.json`, to start long files first and to see what grows.

`pytest --costs-to FILE` writes the seconds of each file of a run, and prints the longest with the recorded ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

RECORDED = Path(__file__).with_suffix(".json")
LEAST_S = 1.0
"""Shorter files are not recorded."""
SHOWN = 50
GROWN = 1.5
"""A file that takes so many times the recorded seconds is marked."""


def recorded() -> dict[str, float]:
    """Return the recorded seconds of each file."""
    costs: dict[str, float] = json.loads(RECORDED.read_text("utf-8"))
    return costs


def measured(reports: Iterable[pytest.TestReport], part_of: Callable[[str], str]) -> dict[str, float]:
    """Return the seconds of each part of a run, the longest first. `part_of` maps the ID of a test to its part."""
    seconds = Counter[str]()
    for report in reports:
        seconds[part_of(report.nodeid)] += report.duration
    return {part: round(took, 1) for part, took in seconds.most_common() if took >= LEAST_S}


def write(path: Path, costs: dict[str, float]) -> None:
    path.write_text(json.dumps(dict(sorted(costs.items())), indent=1) + "\n", encoding="utf-8")


def table(costs: dict[str, float]) -> Iterator[str]:
    """Yield the lines of a table: the longest parts, with their recorded seconds."""
    known = recorded()
    yield f"{'seconds':>8} {'recorded':>8}"
    for part, took in [*costs.items()][:SHOWN]:
        before = known.get(part, 0.0)
        mark = "  grown" if took > GROWN * max(before, LEAST_S) else ""
        yield f"{took:8.1f} {before:8.1f}  {part}{mark}"
    yield f"{sum(costs.values()):8.1f} {sum(known.get(part, 0.0) for part in costs):8.1f}  all"
