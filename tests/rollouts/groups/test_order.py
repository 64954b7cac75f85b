"""The order of rollouts that are verified together, and settings and rows with which no group would be complete."""

from __future__ import annotations

from collections import Counter

import pytest

from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.control.control import Control
from nemo_gym.rollouts.groups import check_groups
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.schemas.row import Row as RowView
from tests.rollouts.groups.serving import acts, collected, servers, written
from tests.rows import rows_of


@pytest.mark.parametrize("settings", [{"dispatch_budget_s": 1e-6}, {"max_total_tokens": 1}])
async def test_budget_ends_between_groups(tmp_path, settings):
    async with servers() as client:
        source = written(tmp_path / "in.jsonl", tasks=6)
        files = await collected(client(), source, num_repeats=12, num_samples_in_parallel=12, **settings)
    assert all(row["_ng_group"]["compared"] == 12 for row in rows_of(files.results))
    assert len(rows_of(files.results)) % 12 == 0
    assert len(rows_of(files.results)) < 72


SETTINGS = {
    "num_repeats: 'shares' verifies all repeats of a task together, but a task of agent 'agent' has only one "
    "repeat.": {"num_repeats": None},
    "interleave_repeats: 'shares' verifies": {"interleave_repeats": True},
    "until_halfwidth: 'shares' verifies": {"until_halfwidth": 0.1},
}


@pytest.mark.parametrize("verb", ["drain", "pause"])
async def test_drain_and_pause_begin_between_groups(tmp_path, verb):
    controls: list[Control] = []

    async def steer(row: RowView) -> None:
        if row.key == (1, 0):
            getattr(controls[0], verb)()

    def on_record(record, summary) -> None:
        if summary.scored == 8:
            controls[0].resume()

    acts.before = steer
    async with servers() as client:
        tasks = written(tmp_path / "in.jsonl", tasks=3)
        files = await collected(client(), tasks, on_record=on_record, steer=controls.append, num_samples_in_parallel=4)
    complete = Counter(row["_ng_task_index"] for row in rows_of(files.results))
    assert complete == ({0: 4, 1: 4} if verb == "drain" else {0: 4, 1: 4, 2: 4})
    assert {row["_ng_group"]["compared"] for row in rows_of(files.results)} == {4}


async def test_settings_that_break_groups_are_refused(tmp_path):
    async with servers() as client:
        source = written(tmp_path / "in.jsonl")
        files = await collected(client(), source)
        before = files.results.read_bytes()
        for message, settings in SETTINGS.items():
            with pytest.raises(ConfigError) as error:
                await collected(client(), source, overwrite=True, **settings)
            assert str(error.value).startswith(message)
    assert files.results.read_bytes() == before


@pytest.mark.parametrize("grouped", [{"a": "shares"}, {"a": "shares", "b": "other"}, {"b": "shares"}])
def test_rows_that_never_form_a_group_are_refused(tmp_path, grouped):
    path, settings = tmp_path / "rows.jsonl", CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": repeat, "agent_ref": {"name": "a" if repeat < 2 else "b"}}
        for repeat in range(4)
    ]
    path.write_bytes(b"".join(map(dump_line, rows)))
    with pytest.raises(DataError, match=r"task 0 has rows of the agents 'a' and 'b'.* different _ng_task_index"):
        check_groups(path, grouped, settings)
    # If both agents use the same server, it verifies their rollouts together.
    assert check_groups(path, {"a": "shares", "b": "shares"}, settings)
