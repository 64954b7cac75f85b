"""Tests of the agent, and of its program with a model that is served over HTTP."""

import asyncio
import sys
from pathlib import Path

import pytest

from nemo_gym import AgentFailed
from nemo_gym.contract import open_environment
from nemo_gym.testing import make_server, on_a_port, run
from responses_api_agents.my_environment.app import PROGRAM, MyEnvironmentAgent
from responses_api_models.sample_model.app import SampleModel

FOLDER = Path(__file__).parents[1]

pytestmark = pytest.mark.asyncio


async def rollout_with(code):
    """Return the graded rollout of an agent whose program is this code."""
    with open_environment(FOLDER) as environment:
        agent = make_server(
            MyEnvironmentAgent,
            servers=[environment.server()],
            resources_server={"type": "resources_servers", "name": environment.name},
            model_server={"type": "responses_api_models", "name": "policy_model"},
            command=[sys.executable, "-c", code],
        )
        return await run(agent, **environment.rows[0])


async def test_output_of_the_program_is_graded():
    graded = await rollout_with("import json, sys; print(bool(json.load(sys.stdin)['input']))")
    assert graded.response.last_text == "True"


async def test_failing_program_fails_the_rollout():
    with pytest.raises(AgentFailed, match="exited with 1: no model"):
        await rollout_with("raise SystemExit('no model')")


async def test_program_prints_the_answer_of_the_model():
    async with on_a_port(make_server(SampleModel, answers=["Forty-two."])) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"},
        )
        output, _ = await process.communicate(b'{"input": "How much?"}')
    assert (process.returncode, output) == (0, b"Forty-two.\n")
