"""HTTP/1.1 as our protocol speaks it: the same bytes go to it and to uvicorn's own, and the same comes back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.servers.protocol.served import OURS, PROTOCOLS, THEIRS, Served, serving


@pytest.fixture(scope="module", autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """uvicorn's configuration reaches loggers that other tests share."""
    access = logging.getLogger("uvicorn.access")
    before = access.handlers[:], access.propagate, access.level
    yield
    access.handlers, access.propagate = before[0], before[1]
    access.setLevel(before[2])


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Served]]:
    with serving(OURS, timeout_keep_alive=60) as ours, serving(THEIRS, timeout_keep_alive=60) as theirs:
        yield {OURS: ours, THEIRS: theirs}


@pytest.fixture
def both(running: dict[str, Served]) -> dict[str, Served]:
    for served in running.values():
        served.app.begin_anew()
    return running


@pytest.fixture
def ours(both: dict[str, Served]) -> Served:
    return both[OURS]


@pytest.fixture(params=list(PROTOCOLS))
def served(request: pytest.FixtureRequest, both: dict[str, Served]) -> Served:
    return both[request.param]
