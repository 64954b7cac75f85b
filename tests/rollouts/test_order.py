"""The order in which rollouts start, and the time budget for starting them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("interleaves", "begun"), [(False, "0-0 0-1 0-2 1-0 2-0 2-1"), (True, "0-0 1-0 2-0 0-1 2-1 0-2")]
)
async def test_repeats_start_row_by_row_or_interleaved(run_tasks, make_task, agent, interleaves, begun):
    agents = ("sound", "mute", "sick")
    rows = [make_task(number, agent_ref={"name": name}) for number, name in enumerate(agents)]
    repeats = {"sound": 3, "mute": 1, "sick": 2}
    run = await run_tasks(rows, num_repeats=repeats, num_samples_in_parallel=1, interleave_repeats=interleaves)
    assert [f"{row['_ng_task_index']}-{row['_ng_rollout_index']}" for row in run.results] == begun.split()
    assert run.summary.scored == 6


async def test_resumed_run_interleaves_pending_repeats(run_tasks, make_task):
    rows = [make_task(number) for number in range(3)]
    await run_tasks(rows, num_samples_in_parallel=1)
    settings = {"num_repeats": 3, "resume_from_cache": True, "interleave_repeats": True}
    run = await run_tasks(rows, num_samples_in_parallel=1, **settings)
    assert [row["_ng_rollout_index"] for row in run.results] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_spent_budget_stops_new_rollouts_only(run_tasks, make_task, agent, monkeypatch):
    # The clock of the budget moves only when the tenth rollout ends, however long that takes.
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("nemo_gym.rollouts.budget.time", clock)

    def advance(record, summary):
        clock.now = 0.2 if summary.scored < 10 else 0.4

    rows = [make_task(number) for number in range(50)]
    run = await run_tasks(rows, num_samples_in_parallel=2, dispatch_budget_s=0.3, on_record=advance)
    # One rollout was running when the time was over.
    assert run.summary.scored == 11
    assert run.summary.unresolved == 39
    assert len(agent.state()["begun"]) == 11
    again = await run_tasks(rows, num_samples_in_parallel=20, resume_from_cache=True)
    assert again.summary.scored == 50
