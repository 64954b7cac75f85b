"""Servers killed during a collection: each rollout ends once and is never graded on the wrong state."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from tests.conftest import PATIENCE_S
from tests.end_to_end.killing import kill
from tests.rows import line_count, rows_of

REMEMBERING_SERVER = """
import asyncio
from nemo_gym import BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool


class Seen(SessionState):
    was_seeded: bool = False
    count: int = 0


class Remembering(SimpleResourcesServer):
    async def seed_session(self, body: BaseSeedSessionRequest, seen: Seen) -> None:
        seen.was_seeded = True

    @tool
    async def look(self, seen: Seen) -> str:
        \"\"\"Look once.\"\"\"
        await asyncio.sleep(0.05)
        seen.count += 1
        return f"You have looked {seen.count} times."

    async def verify(self, body: BaseVerifyRequest, seen: Seen) -> float:
        # Grading on any state but the rollout's own earns nothing.
        return float(seen.was_seeded and seen.count == len(body.response.tool_calls))
"""
CONFIG = """
remembering:
  resources_servers:
    remembering:
      entrypoint: app.py
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: remembering}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: rows, type: example, jsonl_fpath: resources_servers/remembering/data/example.jsonl}
"""
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
ROWS, REPEATS = 5, 80
KILLED = ("remembering", "agent", "policy_model", "remembering")


@pytest.fixture
def words(workplace):
    workplace.environment("remembering", REMEMBERING_SERVER)
    workplace.write("resources_servers/remembering/configs/remembering.yaml", CONFIG)
    rows = [{"responses_create_params": {"input": f"Look around, {number}."}} for number in range(ROWS)]
    lines = "".join(f"{orjson.dumps(row).decode()}\n" for row in rows)
    workplace.write("resources_servers/remembering/data/example.jsonl", lines)
    return (
        f"+config_paths=[resources_servers/remembering/configs/remembering.yaml,{SAMPLE_MODEL}]",
        "++policy_model.responses_api_models.sample_model.tool_call_probability=0.9",
        "+split=example",
        f"+num_repeats={REPEATS}",
        "+num_samples_in_parallel=32",
        "+retry_pause_s=0.2",
        "+output_jsonl_fpath=out.jsonl",
        "+head_server.port=0",
    )


def head_of(workplace, get_json):
    """Wait for the workplace's only run and return the address of its head server."""
    folder = Path(workplace.env["XDG_RUNTIME_DIR"]) / f"nemo_gym-{os.getuid()}"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for path in folder.glob("*.json"):
            with suppress(orjson.JSONDecodeError):
                return f"http://127.0.0.1:{orjson.loads(path.read_bytes())['port']}"
        time.sleep(0.02)
    raise AssertionError("no run came up")


def server_of(head, get_json, name):
    return next(each for each in get_json(f"{head}/server_instances") if each["config_path"] == name)


def key_of(row):
    return row["_ng_task_index"], row["_ng_rollout_index"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_collection_survives_the_death_of_each_server(workplace, words, get_json, seed):
    chance = random.Random(seed)
    command = workplace.start("ng_e2e_collect_rollouts", *words)
    head, results = head_of(workplace, get_json), workplace.folder / "out.jsonl"
    for number, name in enumerate(KILLED):
        # Kill at different points of the run, while rollouts are in progress.
        while line_count(results) < number * 20 + chance.randrange(1, 15):
            assert command.process.poll() is None, command.err
            time.sleep(0.005)
        kill(lambda name=name: server_of(head, get_json, name)["pids"])
    finished = command.wait()
    assert finished.code == 0, finished.err

    scored, failures = rows_of(results), rows_of(workplace.folder / "out_failures.jsonl")
    assert len({key_of(row) for row in scored}) == len(scored)
    assert {key_of(row) for row in scored + failures} == {
        (task, repeat) for task in range(ROWS) for repeat in range(REPEATS)
    }
    lost_for_good = {key_of(row) for row in failures} - {key_of(row) for row in scored}
    planned = ROWS * REPEATS
    assert f"{planned} planned = {planned - len(lost_for_good)} scored + {len(lost_for_good)} failed" in finished.out
    # No rollout was continued and graded after the server lost its state.
    assert {row["reward"] for row in scored} == {1.0}
    assert failures
    assert Counter(row["_ng_failure_class"] for row in failures).keys() == {"lost"}
    again = len(failures) - len(lost_for_good)
    assert f"_failures.jsonl  (including {again} attempts that were retried)" in finished.out
    # Lost rollouts are retried, and only a few are lost three times.
    assert len(lost_for_good) < 20

    for name in KILLED:
        process = name
        assert f"server '{process}' was ended by SIGKILL; its rollouts under way are lost." in finished.err
        assert f"server '{process}' is up again" in finished.err
    assert workplace.left_over() == []


@pytest.mark.slow
def test_collection_ends_when_restarts_are_not_allowed(workplace, words, get_json):
    command = workplace.start("ng_e2e_collect_rollouts", *words, "+restart_limit=0")
    head, results = head_of(workplace, get_json), workplace.folder / "out.jsonl"
    while not line_count(results):
        time.sleep(0.01)
    os.kill(server_of(head, get_json, "policy_model")["pid"], signal.SIGKILL)
    finished = command.wait()
    assert finished.code == 1
    process = "policy_model"
    assert f"Error: server '{process}' was ended by SIGKILL, so the others are stopped too." in finished.err
    assert "Resume out.jsonl with --resume" in finished.err
    assert workplace.left_over() == []
