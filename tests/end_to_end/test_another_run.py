"""A collector whose servers have ended never uses another run's servers on the same ports."""

import re
import socket

import httpx
import orjson
import pytest

from nemo_gym.schemas.rollout import RUN_ID_HEADER
from tests.rows import line_count

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


def written(workplace, port, server):
    """Write an environment, its agent and a row. Return the words that start them."""
    constant = workplace.environment("constant", server)[len("+config_paths=[") : -1]
    workplace.write("agent.yaml", AGENT.format(port=port))
    row = {"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "shared_agent"}}
    workplace.write("rows.jsonl", orjson.dumps(row).decode() + "\n")
    return [f"+config_paths=[{constant},agent.yaml,{MODEL}]"]


@pytest.mark.slow
def test_rollouts_of_an_ended_run_are_lost(workplace, port):
    words = written(workplace, port, SERVER)
    script = workplace.write("collect.py", COLLECT)
    first = workplace.start_servers(*words)
    host, head_port = first.head.removeprefix("http://").split(":")
    collector = workplace.start("python", str(script), host, head_port)
    collector.wait_for("connected")
    first.end()
    second = workplace.start_servers(*words)
    workplace.write("go", "")
    finished = collector.wait()
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
print(asyncio.run(Runner(client, rollout_timeout_s=100.0).run(Row(row))).row.failure_message)
"""


SLOW = SERVER.replace("        return 1.0", "        await asyncio.sleep(0.3)\n        return 1.0").replace(
    "from nemo_gym", "import asyncio\n\nfrom nemo_gym", 1
)
REPEATS = 400
"""Rollouts of which ten run at once for 0.3 s, so that the servers end while most of them are still to run."""


@pytest.mark.slow
@pytest.mark.parametrize("is_recorded", [True, False])
def test_collection_stops_when_its_run_has_ended(workplace, port, is_recorded):
    words = written(workplace, port, SLOW)
    first = workplace.start_servers(*words)
    # A run on another machine has no record on this one.
    elsewhere = {} if is_recorded else {"XDG_RUNTIME_DIR": str(workplace.folder / "elsewhere")}
    (workplace.folder / "elsewhere").mkdir()
    collection = ("+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl", f"+num_repeats={REPEATS}")
    parallel = "+num_samples_in_parallel=10"
    head = f"+head_server.port={first.head.rpartition(':')[2]}"
    command = workplace.start("ng_collect_rollouts", *collection, parallel, head, **elsewhere)
    command.wait_for(f"/{REPEATS} rollouts")
    first.end()
    finished = command.wait()
    assert finished.code == 1
    assert "Traceback" not in finished.err
    assert re.search(r"Error: the run at http://127.0.0.1:\d+ has ended.* with --resume", finished.err)
    kept = line_count(workplace.folder / "out.jsonl")
    counts = f"{REPEATS} planned = {kept} scored + 0 failed + {REPEATS - kept} unresolved"
    assert f"stopped: {counts}" in finished.err, finished.err
    assert (workplace.folder / "out_failures.jsonl").read_bytes() == b""
    assert orjson.loads((workplace.folder / "out_run.json").read_bytes())["state"] == "stopped"
    second = workplace.start_servers(*words)
    resumed = workplace.run("ng_collect_rollouts", *collection, "--resume")
    assert f"{REPEATS} planned = {REPEATS} scored ({kept} of them earlier)" in resumed.out, resumed.err
    assert second.end().code == 0


@pytest.mark.slow
def test_collection_does_not_take_another_run_for_its_own(workplace, port):
    words = written(workplace, port, SLOW)
    first = workplace.start_servers(*words)
    (workplace.folder / "elsewhere").mkdir()
    head = f"+head_server.port={first.head.rpartition(':')[2]}"
    collection = ("+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl", f"+num_repeats={REPEATS}")
    # A run on another machine has no record on this one.
    elsewhere = {"XDG_RUNTIME_DIR": str(workplace.folder / "elsewhere")}
    command = workplace.start("ng_collect_rollouts", *collection, "+num_samples_in_parallel=10", head, **elsewhere)
    command.wait_for(f"/{REPEATS} rollouts")
    first.end()
    second = workplace.start_servers(*words, head)
    finished = command.wait()
    assert re.search(r"Error: the run at http://127.0.0.1:\d+ has ended.* with --resume", finished.err), finished.err
    kept = line_count(workplace.folder / "out.jsonl")
    counts = f"{REPEATS} planned = {kept} scored + 0 failed + {REPEATS - kept} unresolved"
    assert f"stopped: {counts}" in finished.err, finished.err
    assert (workplace.folder / "out_failures.jsonl").read_bytes() == b""
    # The address of the head server says no more than those of the servers.
    refused = httpx.get(f"{second.head}/metrics", headers={RUN_ID_HEADER: "an-ended-run"})
    assert "belongs to another run" in refused.json()["detail"]
    assert second.end().code == 0
