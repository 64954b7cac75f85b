"""Checks of an environment's example files, and their messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.data.examples import check_examples, write_example_metrics
from nemo_gym.errors import DataError


@pytest.fixture
def folder(tmp_path) -> Path:
    """An environment whose examples are complete."""
    made = tmp_path / "resources_servers" / "counter"
    (made / "configs").mkdir(parents=True)
    (made / "configs" / "counter.yaml").write_text("")
    rows = [{"responses_create_params": {"input": "x"}, "level": number} for number in range(5)]
    jsonl.write_rows(made / "data" / "example.jsonl", rows)
    jsonl.write_rows(made / "data" / "example_rollouts.jsonl", rows)
    write_example_metrics(made)
    return made


def message_of(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        check_examples(folder)
    return str(error.value)


def test_complete_examples_pass(folder):
    check_examples(folder)


def test_metrics_name_their_file_and_count_rows(folder):
    metrics = orjson.loads((folder / "data" / "example_metrics.json").read_bytes())
    assert metrics["name"] == metrics["type"] == "example"
    assert metrics["jsonl_fpath"] == "resources_servers/counter/data/example.jsonl"
    assert metrics["Number of examples"] == 5
    assert metrics["level"]["Average"] == 2


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("example.jsonl", "Write five tasks"),
        ("example_metrics.json", "Create it with: python -m nemo_gym.data.examples "),
        ("example_rollouts.jsonl", "Create it with: ng eval run "),
    ],
)
def test_missing_file_reports_the_command_that_creates_it(folder, name, advice):
    (folder / "data" / name).unlink()
    message = message_of(folder)
    assert message.startswith(f"{folder / 'data' / name}: file not found. {advice}")
    assert len(message.splitlines()) == 1


def test_rollouts_command_names_config_and_output(folder):
    (folder / "data" / "example_rollouts.jsonl").unlink()
    message = message_of(folder)
    assert f"--config {folder / 'configs' / 'counter.yaml'} " in message
    assert f"--output {folder / 'data' / 'example_rollouts.jsonl'}" in message


def test_metrics_command_creates_them(folder):
    path = folder / "data" / "example_metrics.json"
    before = path.read_bytes()
    path.unlink()
    made = subprocess.run(
        [sys.executable, "-m", "nemo_gym.data.examples", folder],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert made.stdout.strip() == str(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("count", [0, 4, 6])
@pytest.mark.parametrize("name", ["example.jsonl", "example_rollouts.jsonl"])
def test_exactly_five_lines_are_required(folder, name, count):
    jsonl.write_rows(folder / "data" / name, [{}] * count)
    advice = " Move the others to a dataset of type train or validation." if count > 5 else ""
    assert f"{name}: expected 5 lines, found {count}.{advice}" in message_of(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"Number of examples": 4}', "expected 'Number of examples' to be 5, found 4."),
        ("{}", "to be 5, found None."),
        ("[]", "to be 5, found None."),
        ('{"a": }', "example_metrics.json:1:7: not valid JSON"),
    ],
)
def test_metrics_of_other_examples_are_rejected(folder, text, words):
    (folder / "data" / "example_metrics.json").write_text(text)
    assert words in message_of(folder)


def test_invalid_line_is_reported_with_its_number(folder):
    with (folder / "data" / "example.jsonl").open("a") as file:
        file.write("oops\n")
    assert "example.jsonl:6:1: not valid JSON" in message_of(folder)


def test_unresolved_conflict_file_is_rejected(folder):
    conflict = folder / "data" / "example_metrics_conflict.json"
    conflict.write_text("{}")
    assert message_of(folder).startswith(f"{conflict}: these metrics contradict the earlier ones.")


def test_all_missing_files_are_reported_at_once(tmp_path):
    message = message_of(tmp_path).splitlines()
    assert [line.split(":")[0] for line in message] == [
        str(tmp_path / "data" / name) for name in ("example.jsonl", "example_metrics.json", "example_rollouts.jsonl")
    ]
