"""A collector whose servers have ended never uses another run's servers on the same ports."""

import socket

import orjson
import pytest

SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Constant(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
AGENT = """
shared_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      host: 127.0.0.1
      port: {port}
      resources_server: {{type: resources_servers, name: constant}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_rollouts_of_an_ended_run_are_lost(workplace, port):
    constant = workplace.environment("constant", SERVER)[len("+config_paths=[") : -1]
    workplace.write("agent.yaml", AGENT.format(port=port))
    row = {"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "shared_agent"}}
    workplace.write("rows.jsonl", orjson.dumps(row).decode() + "\n")
    words = [f"+config_paths=[{constant},agent.yaml,{MODEL}]"]
    script = workplace.write("collect.py", COLLECT)
    first = workplace.start_servers(*words)
    host, head_port = first.head.removeprefix("http://").split(":")
    collector = workplace.start("python", str(script), host, head_port)
    collector.wait_for("connected")
    first.end()
    second = workplace.start_servers(*words)
    workplace.write("go", "")
    finished = collector.wait(30.0)
    assert "shared_agent belongs to another run" in finished.out, finished.err
    assert second.end().code == 0


COLLECT = """
import asyncio, pathlib, sys, time

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.calls.client import ServerClient
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row

client = ServerClient.load_from_global_config(BaseServerConfig(host=sys.argv[1], port=int(sys.argv[2])))
print("connected", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
row = {"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "shared_agent"}}
print(asyncio.run(Runner(client, rollout_timeout_s=10.0).run(Row(row))).row.failure_message)
"""
