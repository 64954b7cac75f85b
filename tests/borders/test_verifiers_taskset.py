"""verifiers with our servers: its own harness plays the rows of a run by address, and our servers grade them."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from nemo_gym.testing import run, serving
from resources_servers.example_session_state_mgmt import oracle as counting
from resources_servers.workplace_assistant import oracle as errands
from tests.borders.test_verifiers import PYTHON, REPOSITORY, agent_of, in_order, prepare, read_rows
from tests.borders.test_verifiers import pytestmark as needs_verifiers

pytestmark = needs_verifiers
CONFIGS = [
    f"resources_servers/{name}/configs/{name}.yaml" for name in ("workplace_assistant", "example_session_state_mgmt")
]
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


@pytest.fixture(scope="module")
def head(shared_workplace):
    """Yield the address of a run with two environments."""
    command = shared_workplace.start_servers(f"+config_paths=[{','.join([*CONFIGS, MODEL])}]")
    yield command.head
    command.end()


@pytest.mark.parametrize(
    ("server", "oracle"), [("workplace_assistant", errands), ("example_session_state_mgmt", counting)]
)
async def test_rows_of_a_run_are_played_by_address(head, server, oracle, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(REPOSITORY / "examples/verifiers_taskset"), str(REPOSITORY)])
    )
    taskset = f"gym_run_v1?head={head}&server={server}"
    rows = list(read_rows(await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", taskset, python=PYTHON)))
    row = next(each for each in rows if oracle.asks_for_something(each["task"]["row"]))
    turns = [
        each if isinstance(each, str) else (each.name, json.loads(each.arguments))
        for each in oracle.solve(row["task"]["row"])
    ]
    calls = [[turn] if isinstance(turn, tuple) else turn for turn in turns]
    agent = agent_of(taskset, in_order(*calls))
    async with serving(agent):
        solved = await run(agent, **row)
        agent.server_client._servers["policy_model"]._script = lambda messages: "I do not know."
        wrong = await run(agent, **row)
    assert (solved.reward, wrong.reward) == (1.0, 0.0)
    assert len(solved.response.tool_calls) == len(turns) - 1
