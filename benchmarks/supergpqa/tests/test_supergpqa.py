"""SuperGPQA: its preparation from a fetched file, and the rewards of its answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.supergpqa.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.mcqa.app import McqaServer
from tests.data.benchmark_answers import prompt_of, right_choices, wrong_choices, wrongly_graded

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
QUESTION = {
    "uuid": "0a1b",
    "question": "Which one is right? ",
    "options": ["wrong", "right", "also wrong"],
    "answer": "right ",
    "answer_letter": "B",
    "discipline": "Law",
    "field": "Public Law",
    "subfield": "Constitutional Law",
    "difficulty": "middle",
    "is_calculation": False,
}


def serve(hub, *questions: dict[str, object]) -> None:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    hub.huggingface(SOURCE.repo, SOURCE.path, lines.encode())


def test_questions_become_rows_with_their_discipline(fake_hub, tmp_path):
    serve(fake_hub, QUESTION)
    (row,) = read_rows(prepare(tmp_path / "supergpqa.jsonl"))
    assert row == {
        "question": "Which one is right?",
        "options_text": "A: wrong\nB: right\nC: also wrong",
        "options": [{"A": "wrong"}, {"B": "right"}, {"C": "also wrong"}],
        "expected_answer": "B",
        "grading_mode": "lenient_answer_colon_md",
        "subset": "Law",
        "metadata": {
            "id": "0a1b",
            "field": "Public Law",
            "subfield": "Constitutional Law",
            "difficulty": "middle",
            "is_calculation": False,
        },
    }
    assert prompt_of(row, FOLDER).endswith("\n\nWhich one is right?\n\nA: wrong\nB: right\nC: also wrong")
    assert all((each.keys(), each["metadata"].keys()) == (row.keys(), row["metadata"].keys()) for each in EXAMPLES)


@pytest.mark.parametrize(
    "wrong", [{"answer_letter": "C"}, {"answer_letter": "D"}, {"answer_letter": ""}, {"answer": "?"}]
)
def test_wrong_letter_is_reported_or_skipped(fake_hub, tmp_path, wrong):
    serve(fake_hub, QUESTION, {**QUESTION, **wrong})
    with pytest.raises(DataError, match=r"SuperGPQA-all\.jsonl:2: answer_letter: .* is not the letter of the answer"):
        prepare(tmp_path / "supergpqa.jsonl")
    assert not (tmp_path / "supergpqa.jsonl").exists()
    assert len(list(read_rows(prepare(tmp_path / "supergpqa.jsonl", skip_bad=True)))) == 1


async def test_examples_reward_exactly_their_answers():
    server = make_server(McqaServer)
    assert await wrongly_graded(server, EXAMPLES, right_choices, lambda row: wrong_choices(row, FOLDER)) == []
