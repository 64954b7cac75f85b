"""A training framework: start servers from a mapping, run rows in its own event loop, read the token ids."""

from __future__ import annotations

import re
import subprocess
import sys

import orjson
import pytest

from nemo_gym.global_config import find_open_port
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.slow

ENVIRONMENT = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Shouting(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        if "explode" in body.response.output_text:
            raise RuntimeError("the grading broke")
        return float("!" in body.response.output_text)
"""
CONFIG = """
shouting:
  resources_servers:
    shouting:
      entrypoint: app.py
      domain: other
shouting_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: shouting}
      model_server: {type: responses_api_models, name: policy_model}
shouting_by_another_name:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: shouting_simple_agent}
"""

BEGINNING = """
import asyncio
import json
import sys

from omegaconf import DictConfig, OmegaConf

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig, ServerClient

endpoint, head_port = sys.argv[1], int(sys.argv[2])
head_host, client_host = "127.0.0.1", "127.0.0.1"
config = {
    "config_paths": [
        "resources_servers/shouting/configs/shouting.yaml",
        "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
    ],
    "policy_base_url": [f"{endpoint}/v1", f"{endpoint}/v1"],
    "policy_model_name": "echo",
    "policy_api_key": "dummy_key",
    "default_host": client_host,
    HEAD_SERVER_KEY_NAME: {"host": head_host, "port": head_port},
    "ray_head_node_address": "127.0.0.1:6379",
    "global_aiohttp_connector_limit": 16384,
    "global_aiohttp_connector_limit_per_host": 16384,
    "port_range_low": 20001,
    "port_range_high": 40000,
    "uv_cache_dir": "cache",
    "uv_venv_dir": "environments",
    **OmegaConf.from_dotlist([word.removeprefix("+") for word in sys.argv[3:]]),
}
rows = [
    {
        "responses_create_params": {"input": [{"role": "user", "content": text}]},
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        "_rowidx": index,
        "_ng_rollout_id": f"step3-{index}",
    }
    for index, (text, agent) in enumerate(
        [
            ("ho!", "shouting_simple_agent"),
            ("hum", "shouting_simple_agent"),
            ("ha!", "shouting_by_another_name"),
            ("explode", "shouting_simple_agent"),
        ]
    )
]
"""

TRAINING = (
    BEGINNING
    + """

async def step(semaphore):
    found = {}
    head = BaseServerConfig(host=client_host, port=head_port)
    for task in RolloutCollectionHelper().run_examples(examples=rows, head_server_config=head, semaphore=semaphore):
        try:
            row, result = await task
        except Exception as error:
            found["failed"] = str(error)
            continue
        last = result["response"]["output"][-1]
        found[row["_rowidx"]] = {
            "reward": result["reward"],
            "echoed": result["_rowidx"],
            "id": result["_ng_rollout_id"],
            "tokens": [
                len(last["prompt_token_ids"]), len(last["generation_token_ids"]), len(last["generation_log_probs"])
            ],
        }
    return found


async def train():
    return [await step(None), await step(asyncio.Semaphore(1))]

helper = RunHelper()
helper.start(
    global_config_dict_parser_config=GlobalConfigDictParserConfig(
        dotenv_path=None, initial_global_config_dict=DictConfig(config), skip_load_from_cli=True
    )
)
try:
    helper.poll()
    known = get_global_config_dict()
    client = ServerClient.load_from_global_config(ServerClient.load_head_server_config())
    report = {
        "steps": asyncio.run(train()),
        "port": known["shouting"]["resources_servers"]["shouting"]["port"],
        "status": client.poll_for_status("shouting_by_another_name"),
    }
finally:
    helper.shutdown()
report["after"] = client.poll_for_status("shouting")
print("TOLD " + json.dumps(report))
"""
)


@pytest.fixture
def script(workplace, endpoint):
    """Run a program in the workplace; return the JSON that it printed after TOLD, and the finished process."""
    workplace.write("resources_servers/shouting/app.py", ENVIRONMENT)
    workplace.write("resources_servers/shouting/configs/shouting.yaml", CONFIG)

    def run(source):
        path = workplace.write("train.py", source)
        port = find_open_port()
        finished = subprocess.run(
            [sys.executable, path, endpoint, str(port)],
            cwd=workplace.folder, env=workplace.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        lines = [line.removeprefix("TOLD ") for line in finished.stdout.splitlines() if line.startswith("TOLD ")]
        return orjson.loads(lines[0]) if lines else None, finished

    return run


def test_framework_starts_servers_and_trains_on_rollouts(script, workplace):
    report, finished = script(TRAINING)
    assert finished.returncode == 0, finished.stderr
    for step in report["steps"]:
        assert [step[index]["reward"] for index in "012"] == [1.0, 0.0, 1.0]
        assert [step[index]["echoed"] for index in "012"] == [0, 1, 2]
        assert [step[index]["id"] for index in "012"] == ["step3-0", "step3-1", "step3-2"]
        for index, text in zip("012", ["ho!", "hum", "ha!"], strict=True):
            prompt, generated, log_probs = step[index]["tokens"]
            assert (prompt, generated) == (len(text), log_probs)
            assert generated > 0
        assert "the grading broke" in step["failed"]
    assert 20001 <= report["port"] <= 40000
    assert (report["status"], report["after"]) == ("success", "connection_error")
    assert workplace.left_over() == []


DELETE_RECORDS = """
    import os, pathlib
    for path in pathlib.Path(os.environ["XDG_RUNTIME_DIR"]).glob("nemo_gym-*/*.json"):
        path.unlink()
"""


@pytest.mark.slow
def test_head_may_listen_everywhere_with_keys_from_a_dotenv_file(script):
    source = TRAINING.replace(
        "from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper",
        "from pathlib import Path\n\nfrom nemo_gym.cli.env import RunHelper",
    ).replace("import get_global_config_dict", "import GlobalConfigDictParserConfig, get_global_config_dict")
    source = source.replace('head_host, client_host = "127.0.0.1"', 'head_host, client_host = "0.0.0.0"')
    source = source.replace("dotenv_path=None", 'dotenv_path=Path("framework_env.yaml").absolute()')
    report, finished = script(source)
    assert finished.returncode == 0, finished.stderr
    assert [step["0"]["reward"] for step in report["steps"]] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("head", "client"),
    [
        ("loopback", "loopback"),
        pytest.param("everywhere", "loopback", marks=pytest.mark.slow),
        ("everywhere", "node"),
        pytest.param("node", "node", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("has_record", [pytest.param(True, marks=pytest.mark.slow), False])
def test_process_reaches_the_run_it_started(script, node_address, head, client, has_record):
    addresses = {"loopback": "127.0.0.1", "everywhere": "0.0.0.0", "node": node_address}
    if "node" in (head, client) and node_address is None:
        pytest.skip("this machine has only a loopback address")
    hosts = f'head_host, client_host = "{addresses[head]}", "{addresses[client]}"'
    source = TRAINING.replace('head_host, client_host = "127.0.0.1", "127.0.0.1"', hosts)
    if not has_record:
        source = source.replace("    helper.poll()\n", f"    helper.poll()\n{DELETE_RECORDS}")
    report, finished = script(source)
    assert finished.returncode == 0, finished.stderr
    assert [step["0"]["reward"] for step in report["steps"]] == [1.0, 1.0]


@pytest.mark.slow
def test_configured_timeout_bounds_rollouts(script):
    report, finished = script(
        TRAINING.replace('"policy_model_name": "echo"', '"policy_model_name": "slow:20", "rollout_timeout_s": 0.4')
    )
    assert finished.returncode == 0, finished.stderr
    assert [list(step) for step in report["steps"]] == [["failed"], ["failed"]]
    # On a busy machine the agent's own message may come too late.
    assert re.search("time was over|took longer than rollout_timeout_s=0.4", report["steps"][0]["failed"])


def test_invalid_configuration_fails_before_anything_starts(script, workplace):
    # The first one that is found counts: the repository's own may name a model.
    workplace.write("env.yaml", "unrelated: 1\n")
    report, finished = script(TRAINING.replace("RunHelper()\n", "RunHelper()\ndel config['policy_model_name']\n"))
    assert report is None
    assert "ConfigInterpolationError" in finished.stderr
    assert "policy_model_name" in finished.stderr
    assert workplace.left_over() == []


def test_poll_reports_a_dead_server(script, workplace):
    source = TRAINING.replace(
        "    helper.poll()\n",
        "    import os, time\n"
        "    pid = next(each.pid for each in helper._running().instances if each.process_name == 'shouting')\n"
        "    os.kill(pid, 9)\n"
        "    give_up_at = time.monotonic() + 60\n"
        "    while pid in [each.pid for each in helper._running().instances] and time.monotonic() < give_up_at:\n"
        "        helper.poll()\n"
        "        time.sleep(0.05)\n",
    )
    _, finished = script(source)
    assert "server 'shouting' was ended by SIGKILL" in finished.stderr
    assert workplace.left_over() == []


ROW_WITHOUT_AGENT = TRAINING.replace("rows = [\n    {", "rows = [\n    {}] + [{", 1)


def test_row_without_agent_lists_the_agents(script):
    _, finished = script(ROW_WITHOUT_AGENT)
    assert "examples[0] does not name an agent" in finished.stderr
    assert "shouting_simple_agent, shouting_by_another_name" in finished.stderr
