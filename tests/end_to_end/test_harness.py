"""Programs as agents, in runs with real servers: tokens to train on, and servers that are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from nemo_gym.training import sequences_of, trajectory_of
from tests.rows import rows_of
from tests.waiting import until

pytestmark = [pytest.mark.needs_bubblewrap, pytest.mark.slow]

HERE = Path(__file__).parent / "harness"
MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
CONFIG = "responses_api_agents/harness_agent/configs/harness_agent.yaml"
AGENT = "example_mcp_weather_harness_agent"
BLOCK = f"{AGENT}.responses_api_agents.harness_agent"
SLEEPER = "harness-agent-sleeper"
PATIENCE_S = 110.0


@pytest.fixture(scope="module")
def policy(run_endpoint):
    with run_endpoint(HERE / "policy.py") as url:
        yield url


def servers(workplace, policy, *words):
    return workplace.start_servers(
        f"+config_paths=[{CONFIG},{MODEL}]", f"+policy_base_url={policy}/v1", "+policy_api_key=none",
        "+policy_model_name=policy", *words,
    )  # fmt: skip


def collecting(workplace, run, name, *words):
    question = {"role": "user", "content": "How is the weather in Porto?"}
    row = {"responses_create_params": {"input": [question]}, "verifier_metadata": {"expected_city": "Porto"}}
    workplace.write(f"{name}_rows.jsonl", httpx.Response(200, json=row).text + "\n")
    port = run.head.rpartition(":")[2]
    return workplace.start(
        "ng_collect_rollouts", f"+head_server.port={port}", f"+agent_name={AGENT}", "+num_repeats=4",
        f"+input_jsonl_fpath={name}_rows.jsonl", f"+output_jsonl_fpath={name}.jsonl", *words,
    )  # fmt: skip


def test_rollouts_of_a_program_can_be_trained(shared_workplace, policy):
    folder = shared_workplace.folder / "tokens"
    run = servers(
        shared_workplace,
        policy,
        f"+token_id_capture={{enabled: true, dir: {folder}}}",
        f"++{BLOCK}.token_id_capture=true",
    )
    finished = collecting(shared_workplace, run, "trained").wait()
    run.end()
    assert finished.code == 0, finished.err
    rows = rows_of(shared_workplace.folder / "trained.jsonl")
    calls = httpx.get(f"{policy}/sampled", verify=False).json()
    assert [row["reward"] for row in rows] == [1.0] * 4
    for row in rows:
        assert row["workspace"]["files"]["seen.txt"] == "How is the weather in Porto?"
        assert row["program"]["model_calls"] == 3
        trajectory = trajectory_of(row)
        assert not trajectory.is_masked
        assert len(trajectory.turns) == 3
        last = next(call for call in calls if call["log_probs"] == trajectory.turns[-1].log_probs)
        tokens = trajectory.prompt_ids + trajectory.completion_ids
        assert tokens == last["prompt"] + last["sampled"]
        sampled = [
            token for token, is_sampled in zip(trajectory.completion_ids, trajectory.mask, strict=True) if is_sampled
        ]
        assert sampled == [token for turn in trajectory.turns for token in turn.sampled_ids]


def test_text_loop_keeps_its_answers_and_observations(shared_workplace, policy):
    folder = shared_workplace.folder / "text_tokens"
    run = servers(
        shared_workplace,
        policy,
        f"+token_id_capture={{enabled: true, dir: {folder}}}",
        f"++{BLOCK}.token_id_capture=true",
        f"++{BLOCK}.command=[python3,text_loop.py,task.md]",
        f"++{BLOCK}.files={{text_loop.py: {HERE / 'text_loop.py'}}}",
    )
    finished = collecting(shared_workplace, run, "text").wait()
    run.end()
    assert finished.code == 0, finished.err
    rows = rows_of(shared_workplace.folder / "text.jsonl")
    assert len(rows) == 4
    for row in rows:
        action, observation, answer = row["response"]["output"]
        assert (observation["role"], observation["claimed_by_program"]) == ("user", "user")
        assert action["content"][0]["text"] == "ACTION Porto"
        assert answer["content"][0]["text"] == observation["content"]
        # The answer is right, but the reward also needs a function call.
        assert row["final_response_mentions_weather"]
        assert (row["program"]["side_calls"], row["program"]["claimed_observations"]) == (1, 1)
        assert sorted(len(each.turns) for each in sequences_of(row)) == [1, 2]


def sleepers():
    return [each for each in psutil.process_iter(["cmdline"]) if SLEEPER in (each.info["cmdline"] or ())]


def test_killed_server_leaves_no_program(shared_workplace, policy, tmp_path):
    program = "import time; time.sleep(600)"
    run = servers(
        shared_workplace, policy, f"++{BLOCK}.command=[python3,-c,'{program}',{SLEEPER}]",
        f"++{BLOCK}.sandbox_provider={{bubblewrap: {{workspaces: {tmp_path}}}}}",
    )  # fmt: skip
    collection = collecting(shared_workplace, run, "killed", "+max_attempts=1", "+num_samples_in_parallel=4")
    until(
        lambda: len([each for each in sleepers() if "bwrap" not in each.info["cmdline"][0]]) >= 4, within_s=PATIENCE_S
    )
    workspaces = set(tmp_path.iterdir())
    assert len(workspaces) >= 4
    os.kill(run.servers[AGENT]["pid"], signal.SIGKILL)
    finished = collection.wait()
    assert "4 planned = 0 scored + 4 failed" in finished.out
    until(lambda: not sleepers(), within_s=PATIENCE_S)
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]
    run.end()


def test_cancelled_collection_ends_its_programs(shared_workplace, policy, tmp_path):
    program = "import time; time.sleep(600)"
    run = servers(
        shared_workplace, policy, f"++{BLOCK}.command=[python3,-c,'{program}',{SLEEPER}]",
        f"++{BLOCK}.sandbox_provider={{bubblewrap: {{workspaces: {tmp_path}}}}}",
    )  # fmt: skip
    collection = collecting(shared_workplace, run, "cancelled")
    until(lambda: len(sleepers()) >= 4, within_s=PATIENCE_S)
    collection.process.send_signal(signal.SIGINT)
    collection.process.send_signal(signal.SIGINT)
    collection.wait()
    until(lambda: not sleepers(), within_s=PATIENCE_S)
    until(lambda: not list(tmp_path.iterdir()), within_s=PATIENCE_S)
    run.end()
