"""A full disk ends a run with one message, and the run can be resumed."""

from __future__ import annotations

import pytest

from nemo_gym.errors import DataError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["out.jsonl", "out_failures.jsonl"])
def test_full_disk_is_reported_and_run_can_resume(tiers, collect_rows, row_of, tmp_path, full_disk, name):
    rows = [
        *(row_of(f"sound-{number}") for number in range(10)),
        *(row_of(f"broken-{number}", grade="raise") for number in range(10)),
    ]
    file = tmp_path / name
    (full_disk / name).touch()
    file.symlink_to(full_disk / name)
    with pytest.raises(DataError, match=rf"{name}: cannot be written to \(No space left on device\)") as stopped:
        collect_rows(rows, rollout_timeout_s=60.0, folder=tmp_path)
    assert "--resume" in str(stopped.value)
    assert not any(tiers.at_work().values())
    file.unlink()
    file.touch()
    collected = collect_rows(rows, rollout_timeout_s=60.0, folder=tmp_path, resume_from_cache=True)
    summary = collected.summary
    assert (summary.planned, summary.scored, summary.failed, summary.unresolved) == (20, 10, 10, 0)
    assert {row["case"] for row in rows} == set(collected.results) | set(collected.failures)
