"""`nemo_gym.path_utils`: the path of a run's failures file."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.path_utils import failures_path_for
from tests.each_case import each_case


@each_case("kind", [str, Path])
@each_case(
    ("results", "failures"),
    [
        ("results/x.jsonl", "results/x_failures.jsonl"),
        ("/data/a.b.jsonl", "/data/a.b_failures.jsonl"),
        ("x", "x_failures.jsonl"),
    ],
)
def test_failures_file_is_next_to_the_results(kind, results, failures):
    assert failures_path_for(kind(results)) == Path(failures)
