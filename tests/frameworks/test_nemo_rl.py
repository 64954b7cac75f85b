"""NeMo RL: servers from a mapping, concurrent batches on one running loop, and its checks of each result."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nemo_gym.global_config import find_open_port
from nemo_gym.server_utils import BaseServerConfig
from tests.frameworks.counting import AGENT, CONFIGS, SAMPLING, add, counting_row
from tests.frameworks.engine import MAX_MODEL_LEN, MODEL, OLDER_MODEL, PROGRAM, TEMPERATURE, decode, log_prob

pytestmark = pytest.mark.slow

ACTOR = Path(__file__).with_name("nemo_rl_actor.py")
REPOSITORY = ACTOR.parents[2]
PAGE = REPOSITORY / "docs" / "training" / "nemo_rl.md"
TIMEOUT_S = 100.0


def rows(*given):
    """Return a batch as NeMo RL sends it: each row with its index and the trainer's sampling."""
    batch = [{**row, "_rowidx": index} for index, row in enumerate(given)]
    for row in batch:
        row["responses_create_params"] = SAMPLING | row["responses_create_params"]
    return batch


@pytest.fixture(scope="module")
def engines(run_endpoint):
    """Return two engines. A rollout that changed its engine would lose its sampled tokens and fail."""
    with run_endpoint(PROGRAM) as one, run_endpoint(PROGRAM) as other:
        yield [f"{one}/v1", f"{other}/v1"]


@pytest.fixture
def train(workplace, engines):
    """Return a function that runs NeMo RL's actor with steps of concurrent batches and returns their results."""

    def run(*steps, model=MODEL, urls=engines):
        config = {
            "config_paths": CONFIGS,
            "policy_base_url": urls,
            "policy_model_name": model,
            "policy_api_key": "dummy_key",
            "ray_head_node_address": "127.0.0.1:6379",
            "global_aiohttp_connector_limit_per_host": 16_384,
            "global_aiohttp_connector_limit": 65_536,
        }
        head = {"host": "127.0.0.1", "port": find_open_port()}
        order = workplace.write("order.json", json.dumps({"config": config, "head": head, "steps": steps}))
        finished = subprocess.run(
            [sys.executable, ACTOR, order], cwd=workplace.folder, capture_output=True, text=True,
            env=workplace.env | {"PYTHONPATH": str(REPOSITORY)}, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout.splitlines()[-1])

    return run


def rewards(results):
    """Return the reward of each result, or the message of its failure."""
    return [result.get("reward", result.get("failed")) for result in results]


def spoken(result):
    """Return the text of each message of a message log."""
    return [decode(message["token_ids"]) for message in result["message_log"]]


def test_concurrent_batches_become_message_logs(train, engines):
    three_turns = counting_row(add(2), f"Once more. {add(1)}", "Three.", goal=3)
    reasoning = counting_row(f"<think>I count.</think>\n\n{add(1)}", "One.", start=1, goal=3)
    first, second = (
        rows(three_turns, reasoning, counting_row("meet both 2")),
        rows(counting_row("meet both 2", goal=1)),
    )
    # One row of each batch waits for the other at the engine.
    ((first_batch, second_batch),) = train([first, second], urls=[engines[0]] * 2)
    assert rewards(first_batch) == [1.0, 0.0, 1.0]
    assert rewards(second_batch) == [0.0]
    log = first_batch[0]["message_log"]
    assert [message["role"] for message in log] == ["user", "assistant"] * 3
    assert spoken(first_batch[0])[1::2] == [
        '<call>increment_counter {"count": 2}</call>',
        'Once more. <call>increment_counter {"count": 1}</call>',
        "Three.",
    ]
    assert spoken(first_batch[0])[2].startswith('tool\n{"success":true}')
    assert spoken(first_batch[1])[1].startswith("<think>I count.</think>\n\n<call>")
    assert {result["agent"] for result in first_batch} == {AGENT}
    assert all(result["input_message_log"] == result["message_log"][:1] for result in first_batch)
    assert not any(result["is_masked"] for result in first_batch)
    assert log_probs_of(log) == expected_log_probs_of(log)


def log_probs_of(log):
    return [number for message in log for number in message.get("generation_logprobs", ())]


def expected_log_probs_of(log):
    """Return the log-probabilities that the engine gave to the sampled tokens at their positions."""
    roles = [(message["role"], token) for message in log for token in message["token_ids"]]
    return [log_prob(token, position) for position, (role, token) in enumerate(roles) if role == "assistant"]


@pytest.mark.slow
def test_failing_rows_do_not_end_their_batch(train):
    ungraded = counting_row("Done.")
    del ungraded["expected_count"]
    off_policy = counting_row("Done.", temperature=TEMPERATURE / 2)
    batch = rows(ungraded, counting_row(add(1), goal=1), off_policy, counting_row("Done."))
    ((results,), (again,)) = train([batch], [rows(counting_row("Done."))])
    assert [result.get("reward") for result in results] == [None, 1.0, None, 1.0]
    assert results[0]["class"] == "invalid_task"
    assert "expected_count" in results[0]["failed"]
    assert "temperature is 0.45, but the trainer samples with 0.9" in results[2]["failed"]
    assert again[0]["reward"] == 1.0


@pytest.mark.slow
def test_full_context_ends_a_rollout_not_its_batch(train):
    # Ten calls in one turn fit into the context, but their outputs do not.
    padding = "9" * 1090
    overflowing = counting_row("get_counter_value({})" * 10, padding, goal=1)
    endless = counting_row("9" * MAX_MODEL_LEN)
    too_long_answer = counting_row("9" * 50, max_output_tokens=20)
    ((results,),) = train([rows(overflowing, endless, too_long_answer)])

    assert [message["role"] for message in results[0]["message_log"]] == ["user", "assistant"]
    assert results[0]["items"][-1] == "message"
    assert (results[0]["incomplete"], results[0]["reward"]) == ("max_output_tokens", 0.0)
    assert "no_generation" in results[1]
    assert spoken(results[2])[1] == "9" * 20
    assert results[2]["incomplete"] == "max_output_tokens"


@pytest.mark.slow
def test_rollout_stays_with_one_of_the_engines(train):
    ((results,),) = train([rows(*[counting_row(add(2), add(1), "Three.", goal=3)] * 8)])
    assert rewards(results) == [1.0] * 8
    assert {len(result["message_log"]) for result in results} == {6}


@pytest.mark.slow
def test_engine_without_token_ids_is_tokenized_for_training(train):
    ((results,),) = train([rows(counting_row(add(2), add(1), "Three.", goal=3))], model=OLDER_MODEL)
    assert rewards(results) == [1.0]
    log = results[0]["message_log"]
    assert [message["role"] for message in log] == ["user", "assistant"] * 3
    assert log_probs_of(log) == expected_log_probs_of(log)


@pytest.mark.slow
async def test_documented_message_logs(run):
    address = urlsplit(run.head)
    names: dict[str, Any] = {}
    exec(re.search(r"```python file=check_batch.py\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1), names)
    head = BaseServerConfig(host=address.hostname, port=address.port)
    batch = rows(counting_row(add(1), "One.", goal=1), counting_row("Done."))
    logs = {index: log async for index, log in names["message_logs"](batch, head)}
    assert {index: (len(log["message_log"]), log["reward"]) for index, log in logs.items()} == {
        0: (4, 1.0),
        1: (2, 1.0),
    }
