"""Three hosts, and the tasks of a collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Host, connected_hosts
from tests.cluster.runs import write_tasks


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    with connected_hosts(3, "ngrc") as connected:
        yield connected


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_tasks(tmp_path / "tasks.jsonl")
