"""Collections of parts of the tasks: together they are the whole run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.shards import check_shards, find_shards, merge_shards


def outputs(folder):
    return find_shards(f"{folder}/part*.jsonl", folder / "all.jsonl")


@pytest.fixture
def run_part(run_tasks, tmp_path):
    """Return a function that collects a part, such as 2/3, into an output of its own."""

    async def run(rows, shard, **settings):
        output = tmp_path / f"part{shard[0]}.jsonl"
        return await run_tasks(rows, shard=shard, output_jsonl_fpath=output, **settings)

    return run


async def test_parts_together_are_the_whole_run(run_tasks, run_part, make_task, tmp_path):
    # Copies of a row are repeats of one task, and the eighth row has its own number.
    rows = [make_task(n) for n in (0, 1, 2, 1, 3, 4, 2)] + [make_task(5, _ng_task_index=7)]
    whole = await run_tasks(rows, num_repeats=2, num_repeats_add_seed=True)
    parts = [await run_part(rows, f"{n}/3", num_repeats=2, num_repeats_add_seed=True) for n in (1, 2, 3)]
    assert [part.summary.planned for part in parts] == [4, 8, 4]
    assert sorted(part.keys for part in parts) == sorted(
        [key for key in whole.keys if key[0] % 3 == number] for number in range(3)
    )

    def by_key(tasks):
        return sorted(tasks, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))

    assert by_key(row for part in parts for row in part.tasks) == by_key(whole.tasks)
    assert check_shards(outputs(tmp_path)).rollouts == 16
    assert merge_shards(outputs(tmp_path), tmp_path / "all.jsonl") == 16
    merged = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in read_rows(tmp_path / "all.jsonl")]
    assert sorted(merged) == whole.keys


async def test_limit_applies_before_the_parts(run_part, make_task):
    rows = [make_task(n) for n in range(6)]
    assert [(await run_part(rows, f"{n}/2", limit=3)).keys for n in (1, 2)] == [[(0, 0), (2, 0)], [(1, 0)]]


async def test_part_may_be_empty(run_part, make_task):
    run = await run_part([make_task(0)], "2/2")
    assert (run.summary.planned, run.results) == (0, [])


async def test_resumed_parts_do_not_share_numbers(run_part, make_task, tmp_path):
    rows = [make_task(n) for n in range(4)]
    for shard in ("1/2", "2/2"):
        await run_part(rows, shard)
    rows += [make_task(n) for n in range(4, 8)]
    resumed = [await run_part(rows, shard, resume_from_cache=True) for shard in ("1/2", "2/2")]
    assert [run.summary.kept for run in resumed] == [2, 2]
    assert [[task for task, _ in run.keys] for run in resumed] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert check_shards(outputs(tmp_path)).rollouts == 8


@pytest.mark.parametrize("now", [None, "2/2", "1/3"])
async def test_part_is_not_resumed_as_another(run_tasks, run_again, make_task, now):
    await run_tasks([make_task(n) for n in range(4)], shard="1/2")
    with pytest.raises(DataError, match=rf"was started with another shard \(1/2, now {now or 'none'}\)\. Restore"):
        await run_again(shard=now)


@pytest.mark.parametrize("given", ["0/3", "4/3", "3", "1/0", "a/b", "-1/2", "1/2/3", "²/3", ""])
def test_invalid_part_is_rejected(given, tmp_path):
    with pytest.raises(ValidationError, match="must be a part such as 3/8, from 1/8 to 8/8, but is"):
        CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl", shard=given)
