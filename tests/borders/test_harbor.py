"""Harbor: its task folders played by agents here, and compared with its own trials (`make borders-harbor`)."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from nemo_gym import EnvironmentFailed
from nemo_gym.jsonl import write_rows
from nemo_gym.testing import FakeModel, call, make_server, reply, rollout, run
from nemo_gym.training.dataset import DatasetJob, export_dataset
from resources_servers.harbor import oracle
from resources_servers.harbor.app import HarborServer
from resources_servers.harbor.prepare import EXAMPLES
from resources_servers.harbor.task import read_task
from resources_servers.harbor.tests.folders import ATTACK, IS_ATTACKED, TOML, row_of, write_task
from resources_servers.harbor.toml import UNSUPPORTED, TaskToml
from responses_api_agents.harness_agent.app import HarnessAgent
from responses_api_agents.simple_agent.app import SimpleAgent

REPOSITORY = Path(__file__).parents[2]
TASKS = sorted((REPOSITORY / EXAMPLES).iterdir())
PYTHON = REPOSITORY / ".venv-harbor/bin/python"
PATIENCE_S = 300.0
KEYS = """
import json
from harbor.models.task.config import TaskConfig
found, sections, fields = [], {"": TaskConfig}, TaskConfig.model_fields
sections |= {name: fields[name].annotation for name in ("agent", "verifier", "environment", "solution")}
for section, kind in sections.items():
    found += [f"{section}.{name}".lstrip(".") for name in kind.model_fields]
print(json.dumps(sorted(found)))
"""
VALUES = """
import json, sys
from harbor.models.task.task import Task
task = Task(sys.argv[1]).config
environment, tests = task.environment, task.verifier
print(json.dumps([task.schema_version, task.agent.timeout_sec, tests.timeout_sec, tests.env, environment.memory_mb,
    environment.cpus, environment.storage_mb, environment.network_mode.value, environment.env, environment.workdir]))
"""
TRAJECTORY = """
import json, sys
from harbor.models.trajectories import Trajectory
for line in open(sys.argv[1]):
    read = Trajectory.model_validate_json(line)
    print(json.dumps([read.schema_version, len(read.steps), read.final_metrics.extra["reward"]]))
"""
REWARDS = {
    "echo 0.25 > {}.txt": {"reward": 0.25},
    'echo 1 > {}.txt; echo \'{{"reward": 0.5, "speed": 3}}\' > {}.json': {"reward": 0.5, "speed": 3},
    "echo '{{\"reward\": true}}' > {}.json; exit 1": {"reward": 1},
    "exit 0": None,
    "touch {}.txt": None,
    "echo inf > {}.txt": None,
    "echo one > {}.txt": None,
    "echo '[1]' > {}.json": None,
    'echo \'{{"reward": "1"}}\' > {}.json': None,
    "echo '{{' > {}.json; echo 1 > {}.txt": None,
}
"""What the tests of a task do, and the rewards that they give."""

pytestmark = [pytest.mark.needs_bubblewrap, pytest.mark.slow]


@pytest.fixture(scope="module")
def has_harbor():
    if (
        not PYTHON.is_file()
        or subprocess.run([PYTHON, "-c", "import harbor"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no Python 3.12 or newer with harbor: run `make borders-harbor`")


@pytest.mark.usefixtures("has_harbor")
def test_harbor_reads_exported_trajectories(tmp_path):
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}
    text = {"type": "input_text", "text": "What is it?"}
    turns = reply(call("look"), "A bell.").model_dump(mode="json")
    called, answer = turns["output"]
    seen = {"type": "function_call_output", "call_id": called["call_id"], "output": "It rings."}
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": [text, picture, sound]}]},
        "response": {**turns, "output": [called | tokens, seen, answer]},
        "reward": 0.5, "agent_ref": {"name": "agent"}, "_ng_task_index": 0, "_ng_rollout_index": 0,
    }  # fmt: skip
    write_rows(tmp_path / "x.jsonl", [row])
    files = {"input_jsonl_fpath": tmp_path / "x.jsonl", "output_jsonl_fpath": tmp_path / "atif.jsonl"}
    assert export_dataset(DatasetJob(format="atif", **files)).kept == 1
    assert said("-c", TRAJECTORY, str(tmp_path / "atif.jsonl")) == ["ATIF-v1.8", 3, 0.5]


async def test_simple_agent_plays_with_bash(tmp_path):
    row = row_of(write_task(tmp_path / "task", "cmp start.txt copy.txt && [ -x copy.txt ]"))
    server = make_server(HarborServer, name="harbor")
    model = FakeModel([
        call("bash", command="pwd; cat start.txt; exit 3"),
        call("bash", command="cp start.txt copy.txt && chmod 755 *.txt"),
        "Done.",
    ])  # fmt: skip
    agent = make_server(
        SimpleAgent, model=model, servers=[server], resources_server={"type": "resources_servers", "name": "harbor"}
    )
    result = await run(agent, **row)
    assert (result.reward, result.rewards) == (1.0, {"reward": 1.0})
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["bash"]
    assert result.response.output[1].output == "/app\nstart\n\n[exit code 3]"
    # The stored result can be verified again.
    async with rollout(server, **row) as attempt:
        assert (await attempt.verify(reply("Done."), workspace=result.workspace)).reward == 1.0


ASK = """
import json, os, subprocess, urllib.request
body = json.dumps({"model": os.environ["NEMO_GYM_MODEL"], "input": open("task.md").read()}).encode()
url, headers = os.environ["OPENAI_BASE_URL"] + "/responses", {"content-type": "application/json"}
asked = urllib.request.Request(url, body, headers)
command = json.load(urllib.request.urlopen(asked))["output"][0]["content"][0]["text"]
subprocess.run(["bash", "-c", command])
"""


@pytest.mark.parametrize(
    ("command", "reward"), [("cat start.txt > solved.txt; chmod +x *.sh && ./run.sh", 1), (ATTACK, 0)]
)
async def test_coding_agent_is_graded_by_its_files(tmp_path, command, reward):
    files = {"environment/run.sh": "#!/bin/sh\necho $COLOUR >> solved.txt"}
    toml = TOML.format(timeout_s=60) + 'memory_mb = 512\n[environment.env]\nCOLOUR = "red"\n'
    condition = f'[ "$(echo $(cat solved.txt))" = "start red" ] || {IS_ATTACKED}'
    row = row_of(write_task(tmp_path / "task", condition, files, toml=toml))
    agent = make_server(
        HarnessAgent,
        model=FakeModel([command]),
        servers=[make_server(HarborServer, name="harbor")],
        resources_server={"type": "resources_servers", "name": "harbor"},
        model_server={"type": "responses_api_models", "name": "policy"},
        command=["python3", "-c", ASK],
        files={},
    )
    result = await run(agent, **row)
    assert result.reward == reward
    assert ("conftest.py" in result.withheld) == (reward == 0)


def said(*words):
    """Return what a program of Harbor's interpreter prints, as JSON."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HARBOR_TELEMETRY": "0", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([PYTHON, *words], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def played_there(agent, *folders):
    return list(said(Path(__file__).parent / "harbor_trials.py", agent, *map(str, folders)).values())


async def played_here(folder, solves):
    """Play a task's solution, or nothing, and return its rewards, or None if the rollout failed."""
    row = row_of(folder)
    async with rollout(make_server(HarborServer), **row) as attempt:
        for call in oracle.solve(row) if solves else []:
            await attempt.send(call)
        try:
            return (await attempt.verify(reply("Done."))).rewards
        except EnvironmentFailed:
            return None


@pytest.mark.usefixtures("has_harbor")
@pytest.mark.parametrize("agent", ["oracle", "nop"])
async def test_examples_earn_the_same_in_harbor(agent):
    theirs = await asyncio.to_thread(played_there, agent, *TASKS)
    assert [each["error"] for each in theirs] == [None] * len(TASKS)
    assert {each["rewards"]["reward"] for each in theirs} == ({1.0} if agent == "oracle" else {0.0})
    ours = [await played_here(folder, agent == "oracle") for folder in TASKS]
    assert ours == [each["rewards"] for each in theirs]


@pytest.mark.usefixtures("has_harbor")
async def test_rewards_are_read_as_harbor_reads_them(tmp_path):
    scripts = [script.replace("{}", "/logs/verifier/reward").format() for script in REWARDS]
    folders = [
        write_task(tmp_path / f"task{number}", test=f"#!/bin/bash\n{script}\n")
        for number, script in enumerate(scripts)
    ]
    theirs = await asyncio.to_thread(played_there, "nop", *folders)
    assert [each["rewards"] for each in theirs] == list(REWARDS.values())
    assert [each["error"] is None for each in theirs] == [rewards is not None for rewards in REWARDS.values()]
    ours = [await played_here(folder, solves=False) for folder in folders]
    assert ours == list(REWARDS.values())


@pytest.mark.usefixtures("has_harbor")
def test_every_key_of_harbor_is_honoured_or_refused():
    ours = set(UNSUPPORTED) | {"environment.allow_internet"}
    for name, field in TaskToml.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        ours |= {name, *(f"{name}.{key}" for key in inner)}
    assert set(said("-c", KEYS)) == ours - {"environment.memory", "environment.storage"}


@pytest.mark.usefixtures("has_harbor")
@pytest.mark.parametrize("folder", TASKS, ids=lambda path: path.name)
def test_values_are_those_that_harbor_reads(folder):
    toml = read_task(folder).toml
    environment = toml.environment
    assert said("-c", VALUES, folder) == [
        toml.schema_version, toml.agent.timeout_sec, toml.verifier.timeout_sec, toml.verifier.env,
        environment.memory_mb, environment.cpus, environment.storage_mb, environment.network_mode, environment.env,
        environment.workdir,
    ]  # fmt: skip
