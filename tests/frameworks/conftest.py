"""A strict engine and servers of a counting environment that sample from it, shared by a module's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.frameworks.counting import CONFIGS
from tests.frameworks.engine import MODEL, PROGRAM


@pytest.fixture(scope="module")
def engine(run_endpoint: Any) -> Iterator[str]:
    """Yield the address of an engine that rejects what a trainer's engine rejects."""
    with run_endpoint(PROGRAM) as url:
        yield url


@pytest.fixture(scope="module")
def run(shared_workplace: Any, engine: str) -> Iterator[Any]:
    """Yield the command that runs the counting environment with the engine as its policy."""
    command = shared_workplace.start_servers(
        f"+config_paths=[{','.join(CONFIGS)}]", f"+policy_base_url=[{engine}/v1]", "+policy_api_key=dummy_key",
        f"+policy_model_name={MODEL}",
    )  # fmt: skip
    yield command
    command.end()
