"""What tests of the package and of the shipped servers share: a model endpoint in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

# How long the making of examples takes is the machine's affair.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

ENDPOINT = Path(__file__).parent / "tests" / "endpoint" / "server.py"


@contextmanager
def endpoint_process() -> Iterator[str]:
    """The address of a fresh OpenAI-compatible endpoint, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, ENDPOINT, "--port", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An endpoint for a whole module; the model's name decides what it does."""
    with endpoint_process() as url:
        yield url


@pytest.fixture
def another_endpoint() -> Iterator[str]:
    """A second one, where a test needs to tell two apart."""
    with endpoint_process() as url:
        yield url


@pytest.fixture
def seen(endpoint: str) -> Any:
    """Returns the requests that reached the endpoint during this test, each with its path, headers and body."""
    httpx.delete(f"{endpoint}/seen")
    return lambda: httpx.get(f"{endpoint}/seen").json()
