"""Gathering the datasets of a configuration into one task file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from nemo_gym import jsonl
from nemo_gym.config import loading
from nemo_gym.config.models import RunConfig
from nemo_gym.data.gather import datasets_of_split, numbered_rows_of, rows_of
from nemo_gym.errors import DataError
from nemo_gym.jsonl import write_rows


@pytest.fixture
def run_with(tmp_path, monkeypatch):
    """A configuration whose agents have these datasets."""
    monkeypatch.chdir(tmp_path)

    def load(**datasets: list[dict[str, Any]]) -> RunConfig:
        blocks = {
            name: {
                "responses_api_agents": {
                    "simple_agent": {
                        "entrypoint": "app.py",
                        "resources_server": {"type": "resources_servers", "name": "rs"},
                        "model_server": {"type": "responses_api_models", "name": "policy_model"},
                        "datasets": [{"name": "d", "jsonl_fpath": f"{name}.jsonl", **entry} for entry in entries],
                    }
                }
            }
            for name, entries in datasets.items()
        }
        blocks["rs"] = {"resources_servers": {"example_single_tool_call": {"entrypoint": "app.py", "domain": "other"}}}
        blocks["policy_model"] = {"responses_api_models": {"sample_model": {"entrypoint": "app.py"}}}
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(blocks))
        return loading.load([path], skip_dotenv=True)

    return load


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def test_rows_keep_their_order_and_get_their_agent(tmp_path, run_with):
    write(tmp_path / "one.jsonl", {"n": 1}, {"n": 2, "agent_ref": None})
    write(tmp_path / "two.jsonl", {"n": 3, "agent_ref": {"name": "one"}}, {"n": 4})
    run = run_with(one=[{"type": "example"}], two=[{"type": "example"}])
    assert write_rows(tmp_path / "out" / "all.jsonl", rows_of(datasets_of_split(run, "example"), copies=False)) == 4
    rows = list(jsonl.read_rows(tmp_path / "out" / "all.jsonl"))
    assert [(row["n"], row["agent_ref"]["name"]) for row in rows] == [(1, "one"), (2, "one"), (3, "one"), (4, "two")]
    assert rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": "one"}


@pytest.mark.parametrize(("copies", "expected"), [(True, [1, 1, 1, 2, 2, 2]), (False, [1, 2])])
def test_copies_repeat_rows_as_the_dataset_requires(tmp_path, run_with, copies, expected):
    write(tmp_path / "one.jsonl", {"n": 1}, {"n": 2})
    run = run_with(one=[{"type": "benchmark", "num_repeats": 3}])
    write_rows(tmp_path / "all.jsonl", rows_of(datasets_of_split(run, "benchmark"), copies=copies))
    assert [row["n"] for row in jsonl.read_rows(tmp_path / "all.jsonl")] == expected


def test_dataset_prompt_is_applied(tmp_path, run_with):
    write(tmp_path / "one.jsonl", {"q": "2 + 2?"})
    (tmp_path / "prompt.yaml").write_text("user: 'Solve {q}'")
    run = run_with(one=[{"type": "benchmark", "prompt_config": "prompt.yaml"}])
    write_rows(tmp_path / "all.jsonl", rows_of(datasets_of_split(run, "benchmark"), copies=False))
    (row,) = jsonl.read_rows(tmp_path / "all.jsonl")
    assert row["responses_create_params"] == {"input": [{"role": "user", "content": "Solve 2 + 2?"}]}


def test_prompt_mismatch_reports_file_and_line(tmp_path, run_with):
    write(tmp_path / "one.jsonl", {"q": "2 + 2?"}, {"question": "?"})
    (tmp_path / "prompt.yaml").write_text("user: 'Solve {q}'")
    run = run_with(one=[{"type": "benchmark", "prompt_config": "prompt.yaml"}])
    with pytest.raises(DataError, match=r"one\.jsonl:2: the prompt uses 'q', but the row has only: agent_ref, ques"):
        write_rows(tmp_path / "all.jsonl", rows_of(datasets_of_split(run, "benchmark"), copies=False))
    assert not (tmp_path / "all.jsonl").exists()


def test_input_in_addition_to_prompt_is_rejected(tmp_path, run_with):
    write(tmp_path / "one.jsonl", {"q": "?"}, {"q": "?", "responses_create_params": {"input": "Hi"}})
    (tmp_path / "prompt.yaml").write_text("user: 'Solve {q}'")
    (dataset,) = datasets_of_split(run_with(one=[{"type": "example", "prompt_config": "prompt.yaml"}]), "example")
    rows = numbered_rows_of(dataset)
    assert next(rows)[0] == 1
    with pytest.raises(DataError, match=r"one\.jsonl:2: prompt_config is set, but the row has responses_create_para"):
        next(rows)


def test_only_datasets_of_the_split_are_used(tmp_path, run_with):
    write(tmp_path / "one.jsonl", {"n": 1})
    run = run_with(one=[{"type": "example"}, {"type": "benchmark"}], two=[{"type": "benchmark"}])
    assert [(agent, dataset.type) for agent, dataset, _ in datasets_of_split(run, "example")] == [("one", "example")]


def test_unknown_split_reports_the_available_ones(run_with):
    with pytest.raises(DataError, match=r"split=train: no agent .* Available types: benchmark, example\."):
        datasets_of_split(run_with(one=[{"type": "example"}, {"type": "benchmark"}]), "train")


def test_missing_dataset_file_reports_how_to_create_it(run_with):
    with pytest.raises(
        DataError, match=r"one\.datasets: dataset 'd': file 'one\.jsonl' not found in .* download it first"
    ):
        datasets_of_split(run_with(one=[{"type": "example"}]), "example")
    with pytest.raises(DataError, match=r"Create it with prepare\.py\."):
        datasets_of_split(run_with(one=[{"type": "example", "prepare_script": "prepare.py"}]), "example")


def test_gathered_rows_name_their_media_folder(tmp_path, run_with):
    content = [{"type": "input_image", "image_path": "images/a.png"}]
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "one.jsonl", row, {"responses_create_params": {"input": "no image"}})
    run = run_with(one=[{"type": "example", "jsonl_fpath": "set/one.jsonl"}])
    with_image, without = rows_of(datasets_of_split(run, "example"), copies=False)
    assert Path(with_image["_ng_media_dir"]).resolve() == tmp_path / "set"
    assert "_ng_media_dir" not in without
