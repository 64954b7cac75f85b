"""`nemo_gym.path_utils`: where the failures of a run stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.path_utils import failures_path_for


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize(
    ("results", "failures"),
    [
        ("results/x.jsonl", "results/x_failures.jsonl"),
        ("/data/a.b.jsonl", "/data/a.b_failures.jsonl"),
        ("x", "x_failures.jsonl"),
    ],
)
def test_failures_stand_beside_the_results(kind, results, failures):
    assert failures_path_for(kind(results)) == Path(failures)
