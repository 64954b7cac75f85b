"""OpenEnv: rollouts of agents with a small server, and with real servers of the package (`make borders-openenv`)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
from pathlib import Path

import pytest

from nemo_gym import EnvironmentFailed
from nemo_gym.testing import FakeModel, call, connected_server, make_server, run
from resources_servers.openenv.app import OpenEnvServer
from resources_servers.openenv.tests.stub import MCP_SCHEMA, game, stub, tools
from responses_api_agents.aviary_agent.app import AviaryAgent
from responses_api_agents.simple_agent.app import SimpleAgent

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 60.0
STARTED_WITHIN_S = 300.0
HAS_OPENENV = "from importlib.util import find_spec; raise SystemExit(find_spec('openenv') is None)"


def server_at(address, **settings):
    return make_server(OpenEnvServer, address=address, **settings)


def move(value):
    return call("act", move=value)


def agent_of(kind, server, *replies, **settings):
    about = {
        "resources_server": {"type": "resources_servers", "name": server.config.name},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    return connected_server(kind, {"name": "agent", **about, **settings}, model=FakeModel(replies), servers=[server])


async def test_done_ends_the_rollout_and_its_connection():
    async with stub(game) as server:
        agent = agent_of(AviaryAgent, server_at(server.address), move("2"), move("stop"), move("9"))
        graded = await run(agent, reset={"seed": 1})
        assert await asyncio.wait_for(server.ended.get(), TIMEOUT_S) == 1
    assert (graded.reward, graded.done) == (2.0, True)
    assert [message["type"] for message in server.messages[0]] == ["reset", "step", "step", "close"]
    asked = graded.model_dump()["responses_create_params"]
    assert asked["input"][-1]["content"] == '{"board":{"seed":1}}'
    assert asked["tools"][0]["parameters"] == {
        "type": "object", "properties": {"move": {"type": "string"}}, "required": ["move"],
    }  # fmt: skip


async def test_turn_without_a_call_ends_the_rollout():
    async with stub(game) as server:
        graded = await run(agent_of(AviaryAgent, server_at(server.address), move("1"), "I stop here."))
    assert (graded.reward, graded.done, len(server.messages[0])) == (1.0, False, 3)


async def test_simple_agent_calls_the_tools_of_a_row():
    definition = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    async with stub(tools, MCP_SCHEMA) as server:
        agent = agent_of(SimpleAgent, server_at(server.address), call("add", a=5), "Done.")
        graded = await run(agent, responses_create_params={"input": "Add.", "tools": [definition]})
    assert graded.reward == 0.5
    assert graded.response.output[1].output == "add"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Yield the addresses of servers of the package, by name."""
    python = os.environ.get("NEMO_GYM_OPENENV_PYTHON") or str(REPOSITORY / ".venv-openenv/bin/python")
    if not Path(python).is_file() or subprocess.run([python, "-c", HAS_OPENENV], check=False).returncode:
        pytest.skip("no Python with openenv: run `make borders-openenv`, or set NEMO_GYM_OPENENV_PYTHON")
    command = [python, str(Path(__file__).with_name("openenv_servers.py")), str(tmp_path_factory.mktemp("servers"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as servers:
        try:
            assert select.select([servers.stdout], [], [], STARTED_WITHIN_S)[0], "openenv's servers did not start"
            ports = json.loads(servers.stdout.readline())
            yield {name: f"ws://127.0.0.1:{port}/ws" for name, port in ports.items()}
        finally:
            servers.kill()


def right():
    return call("act", direction="right")


# Each environment, and how to earn its full reward.
WON = {
    "template": ({"seed": 1}, [call("act", message="ten letters"), "Done."], 1.0),
    "dial": ({"seed": 1}, [right(), right()], 1.0),
    "adding": ({"split": "test", "index": 2}, [call("add", a=10, b=2), call("submit", value=12)], 1.0),
    "calling": ({"split": "train", "index": 4}, [call("submit", value=14)], 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WON)
async def test_environment_of_the_package_is_won(addresses, name):
    reset, replies, reward = WON[name]
    graded = await run(agent_of(AviaryAgent, server_at(addresses[name]), *replies), reset=reset)
    assert graded.reward == reward
    assert graded.done == (name != "template")


@pytest.mark.slow
async def test_tools_of_the_package_answer(addresses):
    replies = [call("add", a=1, b=2), call("add", a="x"), call("act"), "I give up."]
    graded = await run(agent_of(AviaryAgent, server_at(addresses["adding"]), *replies))
    outputs = [item.output for item in graded.response.output if item.type == "function_call_output"]
    assert (outputs[0], graded.reward) == ("3", 0.0)
    assert outputs[1].startswith("Error: 2 validation errors for call[add]")
    assert outputs[2] == "Error: unknown tool 'act'. The tools are: add, submit."


@pytest.mark.slow
async def test_errors_of_the_package_are_shown_or_fail_the_rollout(addresses):
    replies = [call("act", direction="up"), call("act", direction="left"), "I give up."]
    graded = await run(agent_of(AviaryAgent, server_at(addresses["dial"]), *replies), reset={"seed": 0})
    invalid, failed = (item.output for item in graded.response.output if item.type == "function_call_output")
    assert invalid == "Error: Invalid message; direction: Input should be 'left' or 'right'"
    assert failed == "Error: the dial is at its left end"
    for name, problem in (("dial", "reset: EXECUTION_ERROR: 13 is not on"), ("broken", "FACTORY_ERROR")):
        with pytest.raises(EnvironmentFailed, match=problem):
            await run(agent_of(AviaryAgent, server_at(addresses[name]), "Done."), reset={"seed": 13})


@pytest.mark.slow
async def test_server_with_one_session_serves_a_group(addresses):
    server = server_at(addresses["dial"])
    agents = [agent_of(AviaryAgent, server, right(), right()) for _ in range(4)]
    graded = await asyncio.gather(*(run(agent, reset={"seed": 1}) for agent in agents))
    assert [each.reward for each in graded] == [1.0] * 4


@pytest.mark.slow
def test_tasks_of_a_split_are_run_and_checked(addresses, workplace):
    chosen = ["--from", f"openenv:{addresses['adding']}"]
    finished = workplace.run(
        "ng", "eval", "run", *chosen, "--split", "test", "--model-type", "sample_model", "--output", "results/a.jsonl"
    )
    assert finished.code == 0, finished.err
    rollouts = [json.loads(line) for line in (workplace.folder / "results/a.jsonl").read_text().splitlines()]
    assert sorted(row["reset"]["index"] for row in rollouts) == [0, 1, 2]
    checked = workplace.run("ng", "env", "check", *chosen)
    assert checked.code == 0, checked.out + checked.err
