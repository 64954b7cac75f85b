"""Tests of the prepared rows: they have all fields, and the same seed makes the same rows."""

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.my_environment.prepare import INSTRUCTION, prepare


def test_prepared_rows_have_all_fields(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=30)))
    assert {row["responses_create_params"]["input"][0]["content"] for row in rows} == {INSTRUCTION}
    assert {tuple(row) for row in rows} == {("responses_create_params", "hidden_number", "max_guesses")}


def test_rows_depend_only_on_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
