"""Rollouts that are verified in groups, with real servers: killed servers, killed collections, trainers."""

from __future__ import annotations

import signal
import time
from collections import Counter

import orjson
import pytest

from nemo_gym.errors import UsageError
from nemo_gym.training import TrainingClient
from tests.end_to_end.killing import kill
from tests.rows import line_count, rows_of

pytestmark = pytest.mark.slow

RANKING_SERVER = """
import asyncio
from collections.abc import Sequence

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class Ranking(SimpleResourcesServer):
    async def verify_group(self, bodies: Sequence[BaseVerifyRequest]) -> list[BaseVerifyResponse]:
        await asyncio.sleep(0.05)
        lengths = [len(body.response.last_text) for body in bodies]
        shares = [sum(own > other for other in lengths) / len(lengths) for own in lengths]
        return [
            BaseVerifyResponse.grade(body, reward=share, lengths=lengths)
            for body, share in zip(bodies, shares, strict=True)
        ]
"""
AGENT = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: ranking}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: rows, type: example, jsonl_fpath: resources_servers/ranking/data/example.jsonl}
"""
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
TASKS, SIZE = 25, 8


def write_environment(workplace, source=RANKING_SERVER):
    selected = workplace.environment("ranking", source, "group_verification: {}\nnum_workers: 2")
    config = workplace.folder / "resources_servers/ranking/configs/ranking.yaml"
    config.write_text(config.read_text() + AGENT)
    rows = [{"responses_create_params": {"input": f"Say something, {number}."}} for number in range(TASKS)]
    lines = "".join(f"{orjson.dumps(row).decode()}\n" for row in rows)
    workplace.write("resources_servers/ranking/data/example.jsonl", lines)
    return f"{selected.removesuffix(']')},{SAMPLE_MODEL}]"


@pytest.fixture(scope="module")
def run(shared_workplace):
    command = shared_workplace.start_servers(write_environment(shared_workplace))
    yield command
    command.end()


def check_groups(results):
    """Check that each rollout was scored once, against all others of its task."""
    rows = rows_of(results)
    assert Counter(row["_ng_task_index"] for row in rows) == dict.fromkeys(range(TASKS), SIZE)
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}) == TASKS * SIZE
    for row in rows:
        assert row["_ng_group"] == {"size": SIZE, "compared": SIZE, "missing": []}
        own = len(row["response"]["output"][-1]["content"][0]["text"])
        assert own == row["lengths"][row["_ng_rollout_index"]]
        assert row["reward"] == sum(own > other for other in row["lengths"]) / SIZE


def wait_for_lines(command, results, count):
    while line_count(results) < count:
        assert command.process.poll() is None, command.err
        time.sleep(0.005)


@pytest.mark.slow
def test_groups_survive_the_death_of_their_server(workplace):
    # Slow enough that rollouts are in progress whenever a server is killed.
    slow_server = RANKING_SERVER.replace("asyncio.sleep(0.05)", "asyncio.sleep(0.5)")
    run = workplace.start_servers(write_environment(workplace, slow_server))
    results = workplace.folder / "out.jsonl"
    command = workplace.start(
        "ng_collect_rollouts", "+agent_name=agent", "+input_jsonl_fpath=resources_servers/ranking/data/example.jsonl",
        "+output_jsonl_fpath=out.jsonl", f"+num_repeats={SIZE}", "+num_samples_in_parallel=24", "+retry_pause_s=0.2",
        "+max_attempts=20", f"+head_server.port={run.head.rpartition(':')[2]}",
    )  # fmt: skip
    for count in (10, 60, 120):
        wait_for_lines(command, results, count)
        kill(lambda: run.servers["ranking"]["pids"])
    finished = command.wait()
    assert finished.code == 0, finished.err
    assert f"{TASKS * SIZE} planned = {TASKS * SIZE} scored + 0 failed" in finished.out
    check_groups(results)
    # A call that grades a group is repeated without a failed attempt.
    assert {row["_ng_failure_class"] for row in rows_of(workplace.folder / "out_failures.jsonl")} <= {"lost"}
    run.end()


def test_killed_collection_completes_its_groups(run, shared_workplace):
    workplace, results = shared_workplace, shared_workplace.folder / "killed.jsonl"
    words = (
        "+agent_name=agent", "+input_jsonl_fpath=resources_servers/ranking/data/example.jsonl",
        "+output_jsonl_fpath=killed.jsonl", f"+num_repeats={SIZE}", "+num_samples_in_parallel=20",
        f"+head_server.port={run.head.rpartition(':')[2]}",
    )  # fmt: skip
    command = workplace.start("ng_collect_rollouts", *words)
    wait_for_lines(command, results, 30)
    command.end(signal.SIGKILL)
    # A torn group: some of its members were written, the others run again.
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:-3]))
    ungraded = results.with_name("killed_run") / "ungraded.jsonl"
    assert ungraded.exists()
    finished = workplace.run("ng_collect_rollouts", *words, "+resume_from_cache=true")
    assert finished.code == 0, finished.err
    check_groups(results)
    assert not ungraded.exists()

    again = workplace.run(
        "ng", "eval", "reverify", "+materialized_inputs_jsonl_fpath=killed_materialized_inputs.jsonl",
        "+rollouts_jsonl_fpath=killed.jsonl", "+output_jsonl_fpath=again.jsonl", "+force=true",
        f"+head_server.port={run.head.rpartition(':')[2]}",
    )  # fmt: skip
    assert again.code == 0, again.err
    check_groups(workplace.folder / "unsafe_again.jsonl")


async def test_trainer_gets_rewards_of_groups(run):
    rows = [{"responses_create_params": {"input": f"Say something, {number}."}} for number in range(6)]
    async with TrainingClient(run.head, in_flight=2) as client:
        groups = [group async for group in client.rollouts(rows, repeats=4)]
        with pytest.raises(UsageError, match="repeats=1: 'ranking' verifies all rollouts of a task together"):
            _ = [group async for group in client.rollouts(rows, repeats=1)]
    assert len(groups) == 6
    for group in groups:
        assert {each.result["_ng_group"]["compared"] for each in group.rollouts} == {4}
