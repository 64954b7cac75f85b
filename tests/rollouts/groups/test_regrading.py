"""Stored rollouts that are graded again in groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nemo_gym import JudgeFailed, ModelFailed
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.reverify import Graders, Reverification, ReverificationJob, Stored, reverify
from tests.rollouts.groups.serving import AGENT, SERVER, Row, acts, collected, failing, nothing, servers, written
from tests.rows import rows_of


def job_of(files: RunFiles, **settings: Any) -> ReverificationJob:
    return ReverificationJob(
        materialized_inputs_jsonl_fpath=files.materialized,
        rollouts_jsonl_fpath=files.results,
        output_jsonl_fpath=files.results.with_name("again.jsonl"),
        force=True,
        **settings,
    )


async def regraded(client: ServerClient, files: RunFiles, **settings: Any) -> list[Row]:
    graders = Graders({AGENT: SERVER}, in_groups=frozenset({SERVER}))
    planned = Reverification.plan(Stored.read(job_of(files, **settings)), graders)
    begun = planned.begin(await planned.output(client), RunSubject(), SecretValues())
    with begun.record:
        await reverify(client, planned, begun)
    return rows_of(begun.files.results)


async def test_stored_groups_get_the_same_rewards_again(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=5))
        lines = files.results.read_bytes().splitlines(keepends=True)
        # Results are in the order in which rollouts end.
        files.results.write_bytes(b"".join(lines[::2] + lines[1::2]))
        again = await regraded(client(), files, num_samples_in_parallel=4)
    assert len(again) == 15
    for row in again:
        assert row["reward"] == (row["_ng_rollout_index"] + 1) / 8
        assert row["_ng_group"] == {"size": 4, "compared": 3, "missing": ["1: no stored rollout"]}


async def test_resumed_grading_compares_with_graded_members(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=2))
        await regraded(client(), files)
        output = files.results.with_name("unsafe_again.jsonl")
        output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:5]))
        again = await regraded(client(), files, resume_from_cache=True)
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in again}) == 8
    assert {row["_ng_group"]["compared"] for row in again} == {4}


async def test_resumed_judging_compares_with_graded_members(tmp_path):
    async def fail() -> None:
        raise JudgeFailed("the endpoint is down")

    acts.verifying = fail
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=2))
        assert len(rows_of(files.failures)) == 8
        acts.verifying = nothing
        await regraded(client(), files, judge_failed_only=True)
        output = files.results.with_name("unsafe_again.jsonl")
        output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:5]))
        again = await regraded(client(), files, judge_failed_only=True, resume_from_cache=True)
    assert Counter(row["reward"] for row in again) == {0.1: 2, 0.2: 2, 0.3: 2, 0.4: 2}
    assert {row["_ng_group"]["compared"] for row in again} == {4}


async def test_stored_tasks_of_several_servers_are_refused(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
        rows = rows_of(files.materialized)
        rows[3]["agent_ref"]["name"] = "other"
        files.materialized.write_bytes(b"".join(map(dump_line, rows)))
        graders = Graders({AGENT: SERVER, "other": "plain"}, in_groups=frozenset({SERVER}))
        with pytest.raises(DataError, match="task 0 has rows of the agents 'agent' and 'other'"):
            Reverification.plan(Stored.read(job_of(files)), graders)
