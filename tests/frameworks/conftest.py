"""A strict engine and servers of a counting environment, shared by a module's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nemo_gym.training import SyncTrainingClient
from tests.frameworks.counting import CONFIGS, FORGETFUL_AGENT, FORGETFUL_CONFIG, ROWS, SAMPLING, forgetful_row
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


@pytest.fixture(scope="module")
def open_run(shared_workplace: Any) -> Iterator[Any]:
    """Yield the command that runs the counting environment without an endpoint, for rows that name one."""
    shared_workplace.write("responses_api_agents/forgetful_agent/app.py", FORGETFUL_AGENT)
    forgetful = shared_workplace.write("forgetful.yaml", FORGETFUL_CONFIG)
    command = shared_workplace.start_servers(
        f"+config_paths=[{','.join([*CONFIGS, str(forgetful)])}]", "+policy_base_url=http://127.0.0.1:9/v1",
        "+policy_api_key=none", f"+policy_model_name={MODEL}", "+allow_policy_override=true",
        "+model_endpoint_readiness_timeout_seconds=0",
    )  # fmt: skip
    yield command
    command.end()


@pytest.fixture(scope="module")
def results(open_run: Any, engine: str) -> list[dict[str, Any]]:
    """Return the results of a success, a rollout without reward, one with two sequences, and one without tokens."""
    rows = [ROWS[0], ROWS[1], forgetful_row(), ROWS[2]]
    with SyncTrainingClient(open_run.head) as client:
        client.set_policy(f"{engine}/v1", version=5)
        groups = {group.row["expected_count"]: group for group in client.rollouts(rows, sampling=SAMPLING)}
    return [groups[row["expected_count"]].rollouts[0].result for row in rows]
