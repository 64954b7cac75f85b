"""MATH-500: its preparation from a fetched file, and the rewards of its answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.math_500.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.math_with_judge.app import MathWithJudgeServer
from tests.data.benchmark_answers import prompt_of, right_values, wrong_values, wrongly_graded

pytest.importorskip("math_verify", reason="the extra 'math' is not installed")

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
PROBLEM = {
    "problem": "What is $1 + 1$? ",
    "solution": "It is $\\boxed{2}$.",
    "answer": "2",
    "subject": "Algebra",
    "level": 1,
    "unique_id": "test/algebra/1.json",
}


def serve(hub, *problems: dict[str, object]) -> None:
    hub.file(SOURCE.url, "".join(json.dumps(problem) + "\n" for problem in problems).encode())


def test_problems_become_rows_with_their_subject(fake_hub, tmp_path):
    serve(fake_hub, PROBLEM, {**PROBLEM, "answer": "\\frac{1}{2}", "subject": "Geometry"})
    rows = list(read_rows(prepare(tmp_path / "math_500.jsonl")))
    assert rows[0] == {
        "question": "What is $1 + 1$?",
        "expected_answer": "2",
        "subset": "Algebra",
        "metadata": {"id": "test/algebra/1.json", "level": 1},
    }
    assert prompt_of(rows[0], FOLDER).endswith("\\boxed{}.\n\nWhat is $1 + 1$?")
    assert [row["expected_answer"] for row in rows] == ["2", "\\frac{1}{2}"]
    assert all(row.keys() == rows[0].keys() for row in EXAMPLES)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"answer": " "}, r"test\.jsonl:2: column 'answer' is blank"),
        ({"answer": 2}, r"test\.jsonl:2: column 'answer'.*found int 2"),
        ({"subject": None}, r"test\.jsonl:2: column 'subject'"),
    ],
)
def test_invalid_problem_is_reported_or_skipped(fake_hub, tmp_path, wrong, problem):
    serve(fake_hub, PROBLEM, {**PROBLEM, **wrong})
    with pytest.raises(DataError, match=problem):
        prepare(tmp_path / "math_500.jsonl")
    assert not (tmp_path / "math_500.jsonl").exists()
    assert len(list(read_rows(prepare(tmp_path / "math_500.jsonl", skip_bad=True)))) == 1


def test_pointer_instead_of_the_file_is_reported(fake_hub, tmp_path):
    fake_hub.file(SOURCE.url, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 447000\n")
    with pytest.raises(DataError, match=r"test\.jsonl:1:1: not valid JSON .*Delete the file to download it again"):
        prepare(tmp_path / "math_500.jsonl")


async def test_examples_reward_exactly_their_answers():
    _, root, _, vector, fraction = (row["question"] for row in EXAMPLES)
    equal = {
        root: [r"\boxed{\sqrt{125}}"],
        vector: [r"\boxed{\left(\begin{array}{c}-6\\-1\\3\end{array}\right)}"],
        fraction: [r"\boxed{0.25}", "The probability is 1/4."],
    }
    different = {
        root: [r"\boxed{11.18}", r"\boxed{\pm 5\sqrt{5}}"],
        vector: [r"\boxed{\begin{pmatrix}-1\\-6\\3\end{pmatrix}}", r"\boxed{-6}"],
        fraction: [r"\boxed{4}", r"\boxed{\frac14, \frac34}"],
    }
    wrong = await wrongly_graded(
        make_server(MathWithJudgeServer, should_use_judge=False, judge_model_server=None),
        EXAMPLES,
        lambda row: {**right_values(row), **{text: text for text in equal.get(row["question"], [])}},
        lambda row: {**wrong_values(row, FOLDER), **{text: text for text in different.get(row["question"], [])}},
    )
    assert wrong == []


def test_accuracy_is_computed_by_subject():
    server = make_server(MathWithJudgeServer, should_use_judge=False, judge_model_server=None)
    metrics = server.compute_metrics([[{**row, "reward": float(row["subset"] == "Algebra")}] for row in EXAMPLES])
    assert (metrics["pass@1/accuracy"], metrics["Algebra/pass@1/accuracy"]) == (20.0, 100.0)
