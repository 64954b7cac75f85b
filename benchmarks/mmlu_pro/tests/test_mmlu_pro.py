"""MMLU-Pro: its preparation from a fetched table, and the rewards of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mmlu_pro.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.mcqa.app import McqaServer
from tests.data.benchmark_answers import prompt_of, right_choices, wrong_choices, wrongly_graded
from tests.data.tables_as_files import parquet

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
QUESTION = {
    "question_id": 70,
    "question": "Which one is right? ",
    "options": ["wrong", "right ", "also wrong"],
    "answer": "B",
    "answer_index": 1,
    "cot_content": "",
    "category": "law",
    "src": "ori_mmlu",
}


def serve(hub, *questions: dict[str, object]) -> None:
    hub.huggingface(SOURCE.repo, SOURCE.path, parquet(questions))


def test_questions_become_rows_with_their_category(fake_hub, tmp_path):
    ten = {**QUESTION, "options": [f"text {number}" for number in range(10)], "answer": "J", "answer_index": 9}
    serve(fake_hub, QUESTION, ten)
    first, second = read_rows(prepare(tmp_path / "mmlu_pro.jsonl"))
    assert first == {
        "question": "Which one is right?",
        "options_text": "A: wrong\nB: right\nC: also wrong",
        "options": [{"A": "wrong"}, {"B": "right"}, {"C": "also wrong"}],
        "expected_answer": "B",
        "grading_mode": "lenient_answer_colon_md",
        "subset": "law",
        "metadata": {"id": 70, "source": "ori_mmlu"},
    }
    assert prompt_of(first, FOLDER).endswith("\n\nWhich one is right?\n\nA: wrong\nB: right\nC: also wrong")
    assert (second["expected_answer"], second["options"][-1]) == ("J", {"J": "text 9"})
    assert all(row.keys() == first.keys() for row in EXAMPLES)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"answer": "C"}, "row 2: answer 'C' and answer_index 1 differ"),
        ({"answer": "D", "answer_index": 3}, "row 2: the answer 'D' is not one of the options A, B, C"),
        ({"options": ["right"], "answer": "A", "answer_index": 0}, "row 2: options: the letters are 'A'"),
        ({"options": [str(number) for number in range(27)]}, "row 2: options: the letters are 'AB"),
    ],
)
def test_invalid_question_is_reported_or_skipped(fake_hub, tmp_path, wrong, problem):
    serve(fake_hub, QUESTION, {**QUESTION, **wrong})
    with pytest.raises(DataError, match=f"test-00000-of-00001.parquet: {problem}"):
        prepare(tmp_path / "mmlu_pro.jsonl")
    assert not (tmp_path / "mmlu_pro.jsonl").exists()
    assert len(list(read_rows(prepare(tmp_path / "mmlu_pro.jsonl", skip_bad=True)))) == 1


def test_options_of_another_type_are_reported(fake_hub, tmp_path):
    serve(fake_hub, {**QUESTION, "options": "A: wrong, B: right"})
    with pytest.raises(DataError, match=r"row 1: column 'options'.*found str"):
        prepare(tmp_path / "mmlu_pro.jsonl", skip_bad=True)


async def test_examples_reward_exactly_their_answers():
    server = make_server(McqaServer)
    assert await wrongly_graded(server, EXAMPLES, right_choices, lambda row: wrong_choices(row, FOLDER)) == []


def test_accuracy_is_computed_by_category():
    metrics = make_server(McqaServer).compute_metrics(
        [[{**row, "reward": float(row["subset"] == "physics")}] for row in EXAMPLES]
    )
    assert (metrics["physics/pass@1/accuracy"], metrics["pass@1/accuracy"]) == (100.0, 20.0)
