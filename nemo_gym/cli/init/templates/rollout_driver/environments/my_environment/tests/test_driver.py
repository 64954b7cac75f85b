"""Tests of the driver: model and environment are in this process."""

from pathlib import Path

import pytest

from environments.my_environment.driver import drive
from nemo_gym.contract import open_environment
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, serving
from responses_api_agents.simple_agent.app import SimpleAgent

FOLDER = Path(__file__).parents[1]

pytestmark = pytest.mark.asyncio


async def test_each_row_is_driven_and_written(tmp_path):
    with open_environment(FOLDER) as environment:
        rows = list(environment.rows)
        # Its client reaches the model and the environment, as that of a run does.
        reached = make_server(SimpleAgent, model=FakeModel(["I do not know."] * 5), servers=[environment.server()])
        async with serving(reached):
            rewards = await drive(reached.server_client, rows, tmp_path / "rollouts.jsonl")
    written = list(read_rows(tmp_path / "rollouts.jsonl"))
    assert len(rewards) == len(rows)
    assert sorted(row["reward"] for row in written) == sorted(rewards)
    assert {row["response"]["output"][0]["content"][0]["text"] for row in written} == {"I do not know."}
