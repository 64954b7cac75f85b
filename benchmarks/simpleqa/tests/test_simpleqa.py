"""The benchmark simpleqa: its preparation, and the answers that earn a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simpleqa.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.short_answer_judge.app import ShortAnswerServer
from tests.data.benchmark_answers import prompt_of
from tests.data.fake_hub import FakeHub
from tests.data.sample_judges import GullibleJudge, LiteralJudge, injections
from tests.data.tables_as_files import parquet

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
LABELS = ("[[correct]]", "[[incorrect]]")


def test_questions_are_fetched_and_converted(fake_hub: FakeHub, tmp_path: Path) -> None:
    questions = [{"problem": " Who? ", "answer": "Ada ", "topic": "x"}, {"problem": "When?", "answer": "1843"}]
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, parquet(questions))
    first, second = read_rows(prepare(tmp_path / "simpleqa.jsonl"))
    assert first == {"question": "Who?", "expected_answer": "Ada", "metadata": {"row": 1}}
    assert second["expected_answer"] == "1843"
    assert first.keys() == EXAMPLES[0].keys()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"problem": "Who?"}, "column 'answer' is missing. The columns are problem."),
        ({"problem": "Who?", "answer": " "}, "row 1: column 'answer' is empty."),
        ({"problem": None, "answer": "Ada"}, "row 1: column 'problem': Input should be a valid string"),
        ({"problem": 3, "answer": "Ada"}, "column 'problem': Input should be a valid string"),
    ],
)
def test_file_of_another_form_is_reported(
    fake_hub: FakeHub, tmp_path: Path, wrong: dict[str, object], problem: str
) -> None:
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, parquet([wrong]))
    with pytest.raises(DataError) as caught:
        prepare(tmp_path / "simpleqa.jsonl")
    assert problem in str(caught.value)
    assert not (tmp_path / "simpleqa.jsonl").exists()


def test_bad_rows_are_skipped_on_request(fake_hub: FakeHub, tmp_path: Path) -> None:
    questions = [
        {"problem": "Who?", "answer": " "},
        {"problem": None, "answer": "1843"},
        {"problem": "Where?", "answer": "Bath"},
    ]
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, parquet(questions))
    (row,) = read_rows(prepare(tmp_path / "simpleqa.jsonl", skip_bad=True))
    assert row == {"question": "Where?", "expected_answer": "Bath", "metadata": {"row": 3}}


async def test_only_right_answers_are_rewarded() -> None:
    server = make_server(ShortAnswerServer, model=LiteralJudge(*LABELS))
    async with serving(server):
        for row in EXAMPLES:
            right = row["expected_answer"]
            answers = {right: 1.0, f"**{right}**.": 1.0, "": 0.0, "I do not know.": 0.0, f"{right} or not": 0.0}
            answers |= {row["question"]: 0.0, right[:1]: 0.0, f"<think>{right}</think>No idea": 0.0}
            for text, reward in answers.items():
                async with rollout(server, **row) as attempt:
                    assert (await attempt.verify(reply(text))).reward == reward, text


async def test_injected_instructions_are_not_rewarded() -> None:
    server = make_server(ShortAnswerServer, model=GullibleJudge(*LABELS))
    async with serving(server):
        for text in injections(LABELS[0]):
            async with rollout(server, **EXAMPLES[0]) as attempt:
                assert (await attempt.verify(reply(text))).reward == 0.0, text


def test_example_rows_fit_the_prompt() -> None:
    assert len(EXAMPLES) == 5
    for row in EXAMPLES:
        assert (
            prompt_of(row, FOLDER)
            == f"{row['question']}\n\nAnswer in a few words. If you do not know the answer, say so."
        )
