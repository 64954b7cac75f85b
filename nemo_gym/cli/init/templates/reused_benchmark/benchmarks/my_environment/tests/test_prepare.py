"""Tests of the preparation: each task is a row."""

from benchmarks.my_environment.prepare import SOURCE, prepare
from nemo_gym.jsonl import read_rows


def test_each_task_becomes_a_row(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl")))
    assert rows == list(read_rows(SOURCE))
    assert all(row["responses_create_params"]["input"] for row in rows)
