"""Token capture of an agent that only knows an address, in runs with real servers."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest

from nemo_gym.training import sequences_of, trajectory_of
from nemo_gym.training.trajectory import NonContiguousTokens
from tests.capture.tokens.policy import VOTES
from tests.rows import rows_of
from tests.waiting import until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
DIALECTS = ["responses", "chat", "messages"]
MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
AGENT = """
black_box:
  responses_api_agents:
    black_box:
      entrypoint: app.py
      token_id_capture: true
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""


@pytest.fixture(scope="module")
def policy(run_endpoint):
    with run_endpoint(HERE / "policy.py") as url:
        yield url


@pytest.fixture(scope="module")
def run(shared_workplace, policy):
    """Servers with token capture."""
    shared_workplace.write("responses_api_agents/black_box/app.py", (HERE / "black_box/app.py").read_text())
    shared_workplace.write("black_box.yaml", AGENT)
    folder = shared_workplace.folder / "tokens"
    command = shared_workplace.start_servers(
        f"+config_paths=[black_box.yaml,{MODEL}]", f"+policy_base_url={policy}/v1", "+policy_api_key=none",
        "+policy_model_name=policy", f"+token_id_capture={{enabled: true, dir: {folder}}}",
    )  # fmt: skip
    yield command
    command.end()


def collecting(workplace, run, name, *dialects_of_rows, settings=(), fields=None):
    """Start to collect a rollout per list of dialects."""
    params = {"input": [{"role": "user", "content": "go"}]}
    reference = {"type": "responses_api_agents", "name": "black_box"}
    rows = [
        {"name": f"{name}-{at}", "dialects": each, "responses_create_params": params, "agent_ref": reference}
        | (fields or {})
        for at, each in enumerate(dialects_of_rows)
    ]
    workplace.write(f"{name}_rows.jsonl", "".join(f"{orjson.dumps(row).decode()}\n" for row in rows))
    port = run.head.rpartition(":")[2]
    return workplace.start(
        "ng_collect_rollouts", f"+head_server.port={port}", f"+input_jsonl_fpath={name}_rows.jsonl",
        f"+output_jsonl_fpath={name}.jsonl", "+num_samples_in_parallel=6", "+max_attempts=5", "+retry_pause_s=0.1",
        *settings,
    )  # fmt: skip


def sampled_by(policy):
    """Return how often the endpoint sampled what, after which prompt."""
    calls = httpx.get(f"{policy}/sampled", verify=False).json()
    return Counter((tuple(call["prompt"]), tuple(call["sampled"]), tuple(call["log_probs"])) for call in calls)


def trained_in(row):
    """Yield the calls of a row's training sequences."""
    for sequence in sequences_of(row):
        before = []
        for turn in sequence.turns:
            prompt = before + turn.context_ids
            yield tuple(prompt), tuple(turn.sampled_ids), tuple(turn.log_probs)
            before = prompt + turn.sampled_ids


def decoded(sequence):
    return ["".join(map(chr, turn.sampled_ids)) for turn in sequence.turns]


@pytest.fixture(scope="module")
def collected(shared_workplace, run):
    finished = collecting(shared_workplace, run, "quiet", DIALECTS, ["chat"], ["messages", "responses"]).wait()
    assert finished.code == 0, finished.err
    return rows_of(shared_workplace.folder / "quiet.jsonl")


def test_each_conversation_is_a_sequence(collected):
    for row in collected:
        assert sorted(map(decoded, sequences_of(row))) == sorted(row["heard"])
        assert not any(sequence.is_masked for sequence in sequences_of(row))
        assert row["_ng_token_capture"]["calls"] == 3 * len(row["dialects"])


def test_recorded_tokens_are_those_that_were_sampled(collected, policy):
    trained = Counter(call for row in collected for call in trained_in(row))
    assert trained.total() == 3 * 6
    assert not trained - sampled_by(policy)


def test_single_conversation_is_a_trajectory(collected):
    (row,) = [row for row in collected if row["dialects"] == ["chat"]]
    assert decoded(trajectory_of(row)) == row["heard"][0]
    assert [item["type"] for item in row["response"]["output"]] == ["message"] * 3
    assert len(row["_ng_token_capture"]["agent_output"]) == 1


def test_parallel_calls_with_one_prompt_are_trained_each(shared_workplace, run, policy):
    finished = collecting(shared_workplace, run, "votes", ["chat"], fields={"votes": VOTES}).wait()
    assert finished.code == 0, finished.err
    [row] = rows_of(shared_workplace.folder / "votes.jsonl")
    assert sorted(map(decoded, sequences_of(row))) == sorted(row["heard"])
    assert len(row["heard"]) == 1 + VOTES
    assert (row["_ng_token_capture"]["retries"], row["_ng_token_capture"]["mask_reasons"]) == (0, [])
    assert not Counter(trained_in(row)) - sampled_by(policy)


def test_several_conversations_are_no_single_trajectory(collected):
    row = next(row for row in collected if len(row["dialects"]) == 3)
    with pytest.raises(NonContiguousTokens, match="turn 4: its prompt does not continue the turns before it"):
        trajectory_of(row)


def test_records_are_deleted_after_use(collected, shared_workplace):
    assert list((shared_workplace.folder / "tokens").iterdir()) == []


@pytest.mark.parametrize("server", ["policy_model", "black_box"])
def test_tokens_survive_killed_servers(server, shared_workplace, run, policy):
    name = f"killed_{server}"
    running = collecting(shared_workplace, run, name, *[DIALECTS] * 24)
    killed = kill_again_and_again(server, run, running)
    finished = running.wait()
    assert killed, "the run ended before a server could be killed"
    assert finished.code == 0, finished.err
    rows = rows_of(shared_workplace.folder / f"{name}.jsonl")
    assert len(rows) == 24
    sampled = sampled_by(policy)
    for row in rows:
        trained = list(trained_in(row))
        assert not Counter(trained) - sampled
        if not sequences_of(row)[0].is_masked:
            # Every answer that the agent used was recorded.
            heard = sorted(text for each in row["heard"] for text in each)
            assert heard == sorted("".join(map(chr, ids)) for _, ids, _ in trained)


@pytest.mark.parametrize("continues", ["+resume_from_cache=true", "+overwrite=true"])
def test_records_of_killed_sessions_are_deleted(continues, shared_workplace, run):
    tokens, name = shared_workplace.folder / "tokens", f"again_{continues[1:4]}"
    tokens.mkdir(exist_ok=True)
    others = tokens / "0-0-0123456789abcdef.tokens.jsonl"
    others.write_text("{}")
    killed = collecting(shared_workplace, run, name, *[DIALECTS] * 24)
    until(lambda: len([*tokens.iterdir()]) > 1)
    killed.send(signal.SIGKILL)
    killed.wait()
    left = [*tokens.iterdir()]
    unfinished = [f".{name}_materialized_inputs.jsonl.staged", f".{name}_run.json.4711.partial"]
    for each in unfinished:
        (shared_workplace.folder / each).write_text("{")
    finished = collecting(shared_workplace, run, name, *[DIALECTS] * 24, settings=[continues]).wait()
    assert finished.code == 0, finished.err
    assert len(rows_of(shared_workplace.folder / f"{name}.jsonl")) == 24
    assert len(left) > 1
    assert [*tokens.iterdir()] == [others]
    assert not [each for each in unfinished if (shared_workplace.folder / each).exists()]
    others.unlink()


def kill_again_and_again(server, run, collecting, most=3):
    """Kill a server whenever it is up while a collection runs. Return how often."""
    killed: set[int] = set()
    while collecting.process.poll() is None and len(killed) < most:
        pid = run.servers[server]["pid"]
        if pid not in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(0.1)
    return len(killed)
