"""Runs on a disk that is full after some pages: each can be resumed, and its ledger agrees with its files."""

from __future__ import annotations

import random
import re

import pytest

from nemo_gym.errors import DataError
from tests.rollouts.ledger_agreement import compared, expect_agreement

pytestmark = pytest.mark.slow

BEHAVIORS = (
    {},
    {},
    {"act": "fail_until", "until": 2, "failure_class": "lost"},
    {"act": "crash"},
    {"act": "discard_second"},
)
FULL = re.compile(r"/\.?out(\S*): cannot be written( to)? \(No space left on device\)\. Free (some )?disk space, ")


@pytest.mark.parametrize("size", [0, 300, 1500])
async def test_run_resumes_each_time_the_disk_was_full(run_again, make_task, small_disk, size):
    """Add one page whenever the disk is full, so that each write of each file is the first to fail at some time."""
    chance = random.Random(size)
    rows = [make_task(n, text="x" * size, **chance.choice(BEHAVIORS)) for n in range(20)]
    output = small_disk.folder / "out.jsonl"
    settings = {"output_jsonl_fpath": output, "num_repeats": 3, "max_attempts": 2, "num_samples_in_parallel": 4}
    full = set()
    pages, is_resumed = 1, False
    while not is_resumed:
        try:
            await run_again(rows, **settings)
            is_resumed = True
        except DataError as error:
            full |= {found[1] for found in FULL.finditer(str(error))} or {str(error)}
            pages += 1
            small_disk.resize(pages)
        assert compared(output).problems == []
    assert full == {".jsonl", "_failures.jsonl", "_materialized_inputs.jsonl.staged", "_run/ledger.jsonl"}
    # The end of the last session may have had no space.
    small_disk.resize(2 * pages)
    await run_again(rows, **settings)
    found = expect_agreement(output)
    assert (found.planned, found.unresolved) == (60, 0)
