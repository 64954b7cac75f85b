"""Fetching GSM8K's files, and converting them to rows."""

import json

import pytest

from nemo_gym import DataError, UsageError, run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.math_with_judge.prepare import TRAINING_QUESTIONS, prepare

LINE = {"question": " How many? ", "answer": "1000 + 234 = <<1000+234=1234>>1234\n#### 1,234"}


def written(tmp_path, *lines):
    path = tmp_path / "source.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_expected_answer_follows_the_hashes(tmp_path):
    (row,) = read_rows(prepare(input=written(tmp_path, LINE), output=tmp_path / "rows.jsonl"))
    assert (row["question"], row["expected_answer"]) == ("How many?", "1234")
    assert row["responses_create_params"]["input"][0]["content"].startswith("How many?\n\n")
    assert row["metadata"] == {"dataset": "gsm8k", "line": 1}


def test_same_file_gives_the_same_rows(tmp_path):
    source = written(tmp_path, LINE, {**LINE, "question": "Another?"})
    first, second = (prepare(input=source, output=tmp_path / name).read_bytes() for name in ("a.jsonl", "b.jsonl"))
    assert first == second


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"question": "How many?"}, "answer: Field required"),
        ({"question": 3, "answer": "#### 3"}, "question: Input should be a valid string"),
        ({**LINE, "answer": "There is none"}, "answer: the result after '####' is missing"),
        ({**LINE, "answer": "There is none ####  "}, "answer: the result after '####' is missing"),
    ],
)
def test_invalid_line_is_reported_and_nothing_written(tmp_path, capsys, wrong, message):
    source, output = written(tmp_path, LINE, wrong), tmp_path / "rows.jsonl"
    with pytest.raises(DataError, match=message) as failure:
        prepare(input=source, output=output)
    assert str(failure.value).startswith(f"{source}:2: ")
    assert not output.exists()
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--input", str(source), "--output", str(output)])
    assert message in capsys.readouterr().err
    assert len(list(read_rows(prepare(input=source, output=output, skip_bad=True)))) == 1


def test_command_writes_the_rows(tmp_path):
    run_prepare(prepare, ["--input", str(written(tmp_path, LINE)), "--output", str(tmp_path / "rows.jsonl")])
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 1


def test_splits_are_disjoint_parts_of_the_fetched_questions(fake_hub, tmp_path):
    # Each question twice, with another solution.
    rows = [{"question": f"How many is {n // 2}?", "answer": f"Solution {n}\n#### {n // 2}"} for n in range(200)]
    lines = [json.dumps(row) + "\n" for row in rows]
    fake_hub.github(TRAINING_QUESTIONS.repo, TRAINING_QUESTIONS.path, "".join(lines).encode(), "master")
    counts = {"train": 60, "validation": 3}
    rows = {
        split: list(read_rows(prepare(output=tmp_path / f"{split}.jsonl", split=split, count=count)))
        for split, count in counts.items()
    }
    assert {split: len({row["question"] for row in each}) for split, each in rows.items()} == counts
    assert not {row["question"] for row in rows["train"]} & {row["question"] for row in rows["validation"]}
    assert len(fake_hub.requests) == 1
    with pytest.raises(DataError, match="count: 600 rows of split 'validation' are asked for"):
        prepare(output=tmp_path / "more.jsonl", split="validation")


def test_either_input_or_split_is_required(tmp_path):
    for arguments in ({}, {"input": tmp_path / "a.jsonl", "split": "train"}):
        with pytest.raises(UsageError, match="either --input or --split is required"):
            prepare(output=tmp_path / "rows.jsonl", **arguments)
