"""Tests of the agent: model and environment are in this process."""

from pathlib import Path

import pytest

from nemo_gym.contract import open_environment
from nemo_gym.testing import FakeModel, make_server, run
from responses_api_agents.my_environment.app import REVIEW, MyEnvironmentAgent

FOLDER = Path(__file__).parents[1]

pytestmark = pytest.mark.asyncio


async def test_reviewed_answer_is_graded():
    with open_environment(FOLDER) as environment:
        server, model = environment.server(), FakeModel(["My first answer.", "My second answer."])
        agent = make_server(
            MyEnvironmentAgent,
            model=model,
            servers=[server],
            resources_server={"type": "resources_servers", "name": environment.name},
            model_server={"type": "responses_api_models", "name": "policy_model"},
        )
        graded = await run(agent, **environment.rows[0])
    assert [request["input"][-1].get("content") == REVIEW for request in model.requests] == [False, True]
    assert graded.response.last_text == "My second answer."
