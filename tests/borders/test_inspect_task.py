"""Inspect with our servers: its own loop plays the rows of a run by address, and our servers grade them."""

from __future__ import annotations

import json
import subprocess

import pytest

from resources_servers.example_session_state_mgmt import oracle as counting
from resources_servers.workplace_assistant import oracle as errands
from tests.borders.test_inspect import PATIENCE_S, PYTHON, REPOSITORY
from tests.borders.test_inspect import pytestmark as needs_inspect

pytestmark = needs_inspect
SERVERS = {"workplace_assistant": errands, "example_session_state_mgmt": counting}
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
PLAY = """
import json, sys
from inspect_ai import eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

given = json.loads(sys.argv[1])
used = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)

def turn(asked):
    if isinstance(asked, str):
        output = ModelOutput.from_content("mockllm/model", asked)
    else:
        output = ModelOutput.for_tool_call("mockllm/model", asked["name"], asked["arguments"])
    output.usage = used
    return output

scores = []
for turns in given["attempts"]:
    model = get_model("mockllm/model", custom_outputs=map(turn, turns), memoize=False)
    (log,) = eval(given["file"], task_args=given["args"], model=model, sample_id=given["row"], display="none",
                  log_dir="logs", ctl_server=False)
    # Read on its own from the file, as other programs do.
    (sample,) = read_eval_log(log.location).samples
    score = sample.scores["verify"] if sample.scores else None
    scores.append([score and score.value, score and score.explanation, sample.error and sample.error.message])
print("scores", json.dumps(scores))
"""


@pytest.fixture(scope="module")
def head(shared_workplace):
    """Yield the address of a run with two environments."""
    configs = [f"resources_servers/{name}/configs/{name}.yaml" for name in SERVERS]
    command = shared_workplace.start_servers(f"+config_paths=[{','.join([*configs, MODEL])}]")
    yield command.head
    command.end()


def played(folder, head, server, row, *attempts, **more):
    """Return the score, its explanation and the error of each attempt, from the logs of Inspect."""
    file = REPOSITORY / "examples/inspect_task/nemo_gym_task.py"
    about = {"args": {"url": head, "server": server, **more}, "row": row, "attempts": attempts}
    given = {"file": f"{file}@nemo_gym_task", **about}
    finished = subprocess.run(
        [PYTHON, "-c", PLAY, json.dumps(given)], cwd=folder, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout.rpartition("scores ")[2])


@pytest.mark.parametrize("server", SERVERS)
def test_rows_of_a_run_are_played_by_address(head, server, tmp_path, shared_workplace):
    oracle = SERVERS[server]
    lines = (REPOSITORY / f"resources_servers/{server}/data/example.jsonl").read_text("utf-8").splitlines()
    number, row = next((at, row) for at, row in enumerate(map(json.loads, lines)) if oracle.asks_for_something(row))
    right = [
        each if isinstance(each, str) else {"name": each.name, "arguments": json.loads(each.arguments)}
        for each in oracle.solve(row)
    ]
    solved, wrong = played(tmp_path, head, server, number, right, ["I do not know."])
    assert (solved[0], solved[2]) == (1.0, None)
    assert (wrong[0], wrong[2]) == (0.0, None)
    # The logs as rollouts: the same scores, and commands that read results show them.
    logs = sorted((tmp_path / "logs").glob("*.eval"))
    rewards = [converted(log, tmp_path / f"{at}.jsonl") for at, log in enumerate(logs)]
    assert sorted(rewards) == [0.0, 1.0]
    shown = shared_workplace.run("ng", "eval", "show", str(tmp_path / f"{rewards.index(1.0)}.jsonl"))
    assert (shown.code, right[-1] in shown.out) == (0, True), shown.out + shown.err


def converted(log, output):
    """Write a log's sample as a rollout, and return its reward."""
    program = REPOSITORY / "examples/inspect_task/rollouts_of_log.py"
    subprocess.run([PYTHON, str(program), str(log), str(output)], check=True, timeout=PATIENCE_S)
    return json.loads(output.read_text("utf-8"))["reward"]


def test_failing_server_is_an_error_and_no_score(head, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"responses_create_params": {"input": "Count."}}')
    rejected = [{"name": "increment_counter", "arguments": {"count": "many"}}, "Done."]
    (given,) = played(tmp_path, head, "example_session_state_mgmt", 0, rejected, dataset=str(file))
    assert given[0] is None
    assert "/verify failed with status 422" in given[2]
