"""Converting questions to rows."""

import json

import pytest

from nemo_gym import DataError, UsageError, run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.equivalence_llm_judge.prepare import prepare

SPLITS = ("train", "validation")
LINE = {"question": " How many? ", "answer": " A dozen ", "subject": "eggs"}


def written(tmp_path, *lines):
    path = tmp_path / "source.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_line_becomes_a_row_with_pattern(tmp_path):
    (row,) = read_rows(prepare(tmp_path / "rows.jsonl", written(tmp_path, LINE)))
    assert (row["question"], row["expected_answer"]) == ("How many?", "A dozen")
    assert "<answer>" in row["responses_create_params"]["input"][0]["content"]
    assert row["template_metadata"]["output_regex"] == "(?s)<answer>(.*?)</answer>"
    assert row["metadata"] == {"dataset": "source", "line": 1, "subject": "eggs"}


def test_same_file_gives_the_same_rows(tmp_path):
    source = written(tmp_path, LINE, {**LINE, "question": "Another?"})
    first, second = (prepare(tmp_path / name, source).read_bytes() for name in ("a.jsonl", "b.jsonl"))
    assert first == second


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"question": "How many?"}, "answer: Field required"),
        ({"question": 3, "answer": "3"}, "question: Input should be a valid string"),
        ({**LINE, "answer": ""}, "answer: String should have at least 1 character"),
    ],
)
def test_invalid_line_is_reported_and_nothing_written(tmp_path, capsys, wrong, message):
    source, output = written(tmp_path, LINE, wrong), tmp_path / "rows.jsonl"
    with pytest.raises(DataError, match=message) as failure:
        prepare(output, source)
    assert str(failure.value).startswith(f"{source}:2: ")
    assert not output.exists()
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--input", str(source), "--output", str(output)])
    assert message in capsys.readouterr().err
    assert len(list(read_rows(prepare(output, source, skip_bad=True)))) == 1


def test_command_writes_the_rows(tmp_path):
    run_prepare(prepare, ["--input", str(written(tmp_path, LINE)), "--output", str(tmp_path / "rows.jsonl")])
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 1


def test_made_splits_are_distinct_and_disjoint(tmp_path):
    rows = {split: list(read_rows(prepare(tmp_path / "rows.jsonl", count=300, split=split))) for split in SPLITS}
    questions = {split: {row["question"] for row in made} for split, made in rows.items()}
    assert [len(questions[split]) for split in SPLITS] == [300, 300]
    assert not questions["train"] & questions["validation"]
    assert len({row["expected_answer"] for row in rows["train"]}) > 200
    assert rows["train"] != list(read_rows(prepare(tmp_path / "rows.jsonl", count=300, split="train", seed=1)))


def test_split_of_a_converted_file_is_rejected(tmp_path):
    with pytest.raises(UsageError, match="only generated rows have splits"):
        prepare(tmp_path / "rows.jsonl", written(tmp_path, LINE), split="train")
