"""AIME 2025: its preparation from a fetched table, and the rewards of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.aime25.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.math_with_judge.app import MathWithJudgeServer
from tests.data.benchmark_answers import prompt_of, right_values, wrong_values, wrongly_graded
from tests.data.tables_as_files import parquet

pytest.importorskip("math_verify", reason="the extra 'math' is not installed")

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
PROBLEM = {"problem_idx": 1, "problem": "Find $40 + 2$. ", "answer": 42}


def serve(hub, *problems: dict[str, object]) -> None:
    hub.huggingface(SOURCE.repo, SOURCE.path, parquet(problems))


def test_problems_become_rows_with_whole_numbers(fake_hub, tmp_path):
    serve(fake_hub, PROBLEM, {**PROBLEM, "problem_idx": 2, "answer": 7})
    rows = list(read_rows(prepare(tmp_path / "aime25.jsonl")))
    assert rows[0] == {"question": "Find $40 + 2$.", "expected_answer": "42", "metadata": {"id": 1}}
    assert rows[1]["expected_answer"] == "7"
    assert prompt_of(rows[0], FOLDER).endswith("\\boxed{}.\n\nFind $40 + 2$.")
    assert all(row.keys() == rows[0].keys() for row in EXAMPLES)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"answer": 1000}, "'1000' is not a whole number from 0 to 999"),
        ({"answer": -4}, "'-4' is not a whole number"),
        ({"answer": 4.5}, "found float 4.5"),
    ],
)
def test_invalid_answer_is_reported_with_its_row(fake_hub, tmp_path, wrong, problem):
    serve(fake_hub, *({**row, **wrong} for row in (PROBLEM, PROBLEM)))
    with pytest.raises(DataError, match=rf"train-00000-of-00001\.parquet: row 1: column 'answer'.*{problem}"):
        prepare(tmp_path / "aime25.jsonl")
    assert not (tmp_path / "aime25.jsonl").exists()


def test_bad_rows_are_skipped_on_request(fake_hub, tmp_path):
    serve(fake_hub, {**PROBLEM, "answer": 1000}, {**PROBLEM, "problem": None}, {**PROBLEM, "problem_idx": 3})
    rows = list(read_rows(prepare(tmp_path / "aime25.jsonl", skip_bad=True)))
    assert [row["metadata"] for row in rows] == [{"id": 3}]


def test_missing_column_is_reported_with_its_name(fake_hub, tmp_path):
    serve(fake_hub, {name: value for name, value in PROBLEM.items() if name != "problem"})
    with pytest.raises(DataError, match=r"train-00000-of-00001\.parquet: column 'problem' is missing"):
        prepare(tmp_path / "aime25.jsonl")


async def test_examples_reward_exactly_their_answers():
    server = make_server(MathWithJudgeServer, should_use_judge=False, judge_model_server=None)
    assert await wrongly_graded(server, EXAMPLES, right_numbers, wrong_numbers) == []


def right_numbers(row):
    answer = row["expected_answer"]
    return {
        **right_values(row),
        "with leading zeros": f"\\boxed{{{answer.zfill(3)}}}",
        "in a sentence": f"The answer is {answer}.",
    }


def wrong_numbers(row):
    answer = row["expected_answer"]
    return {
        **wrong_values(row, FOLDER),
        "another digit": f"\\boxed{{{answer}0}}",
        "interval": f"\\boxed{{{answer}-999}}",
        "undecided": f"It is {answer} or 12345.",
    }
