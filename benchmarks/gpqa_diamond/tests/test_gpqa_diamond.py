"""GPQA Diamond: its preparation from a gated table, and the rewards of its answers."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpqa_diamond.prepare import OPTIONS, SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.mcqa.app import McqaServer
from tests.data.benchmark_answers import prompt_of, right_choices, wrong_choices, wrongly_graded
from tests.data.fake_hub import TOKEN

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
QUESTION = {
    "Question": 'Which one is "right",\nand why? ',
    **dict(zip(OPTIONS, ("right", "wrong 1", "wrong 2\n", "wrong 3"), strict=True)),
    "Subdomain": "Optics",
    "High-level domain": "Physics",
    "Explanation": "It is.",
}


def serve(hub, *questions: dict[str, str], more: str = "") -> None:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, questions[0])
    table.writeheader()
    table.writerows(questions)
    hub.huggingface(SOURCE.repo, SOURCE.path, f"{text.getvalue()}{more}".encode(), is_gated=True)


@pytest.fixture
def token(monkeypatch):
    """Have the token of an account that has accepted the terms. Use it after `fake_hub`, which removes tokens."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_questions_become_rows_with_shuffled_options(fake_hub, token, tmp_path):
    serve(
        fake_hub,
        *({**QUESTION, "Question": f"Which one is right in case {number}?"} for number in range(100)),
        QUESTION,
    )
    rows = list(read_rows(prepare(tmp_path / "gpqa_diamond.jsonl")))
    for row in rows:
        texts = {letter: text for option in row["options"] for letter, text in option.items()}
        assert (list(texts), sorted(texts.values())) == (list("ABCD"), ["right", "wrong 1", "wrong 2", "wrong 3"])
        assert texts[row["expected_answer"]] == "right"
        assert (row["subset"], row["metadata"]) == ("Physics", {"subdomain": "Optics"})
    letters = Counter(row["expected_answer"] for row in rows[:100])
    assert min(letters[letter] for letter in "ABCD") > 10
    lines = "\n".join(f"{letter}: {text}" for option in rows[-1]["options"] for letter, text in option.items())
    assert prompt_of(rows[-1], FOLDER).endswith(f'\n\nWhich one is "right",\nand why?\n\n{lines}')
    assert all(row.keys() == rows[0].keys() for row in EXAMPLES)


def test_order_depends_only_on_the_question(fake_hub, token, tmp_path):
    serve(fake_hub, QUESTION)
    (alone,) = read_rows(prepare(tmp_path / "alone" / "gpqa_diamond.jsonl"))
    moved = {**QUESTION, **dict(zip(OPTIONS[1:], ("wrong 3", "wrong 1", "wrong 2\n"), strict=True))}
    serve(fake_hub, {**QUESTION, "Question": "Another?"}, moved)
    assert list(read_rows(prepare(tmp_path / "second" / "gpqa_diamond.jsonl")))[1] == alone


@pytest.mark.parametrize(
    ("given", "remedy"), [("", "Accept the terms on .*/Idavidrein/gpqa"), ("hf_wrong", "not accepted")]
)
def test_gated_table_needs_a_token(fake_hub, tmp_path, monkeypatch, given, remedy):
    monkeypatch.setenv("HF_TOKEN", given)
    serve(fake_hub, QUESTION)
    with pytest.raises(DataError, match=f"gpqa_diamond.csv: .*{remedy}.*"):
        prepare(tmp_path / "gpqa_diamond.jsonl")


def test_incomplete_row_is_reported_or_skipped(fake_hub, token, tmp_path):
    serve(fake_hub, {**QUESTION, "Question": "Which?"}, QUESTION, more="Cut off,right\n")
    with pytest.raises(DataError, match=r"gpqa_diamond\.csv:\d+: column 'Incorrect Answer 1' is missing.*--skip-bad"):
        prepare(tmp_path / "gpqa_diamond.jsonl")
    assert len(list(read_rows(prepare(tmp_path / "gpqa_diamond.jsonl", skip_bad=True)))) == 2


def test_missing_column_is_reported_with_its_name(fake_hub, token, tmp_path):
    serve(fake_hub, {name: value for name, value in QUESTION.items() if name != OPTIONS[0]})
    with pytest.raises(DataError, match=r"gpqa_diamond\.csv:.*column 'Correct Answer' is missing"):
        prepare(tmp_path / "gpqa_diamond.jsonl")


async def test_examples_reward_exactly_their_answers():
    server = make_server(McqaServer)
    assert await wrongly_graded(server, EXAMPLES, right_choices, lambda row: wrong_choices(row, FOLDER)) == []


def test_accuracy_is_computed_by_domain():
    metrics = make_server(McqaServer).compute_metrics(
        [[{**row, "reward": float(row["subset"] == "Biology")}] * 8 for row in EXAMPLES]
    )
    assert metrics["Biology/pass@1[avg-of-8]/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-8]/accuracy"] == 20.0
