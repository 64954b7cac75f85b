"""The fixture for a server whose paths name faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.faulty_server import FaultyServer


@pytest.fixture
def server() -> Iterator[Any]:
    with FaultyServer() as faulty:
        yield faulty


@pytest.fixture
def another_server() -> Iterator[Any]:
    with FaultyServer() as faulty:
        yield faulty
