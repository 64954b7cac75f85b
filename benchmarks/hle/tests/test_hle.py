"""The benchmark hle: its preparation with images, and the answers that earn a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hle.prepare import SOURCE, prepare
from nemo_gym import BaseRunRequest, DataError
from nemo_gym.data import catalog
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.equivalence_llm_judge.app import EquivalenceServer
from tests.data.fake_hub import TOKEN, FakeHub
from tests.data.sample_judges import GullibleJudge, LiteralJudge, injections
from tests.data.tables_as_files import parquet

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
LABELS = ("[[A=B]]", "[[A!=B]]")
IMAGE = "data:image/png;base64,iVBORw0KGgo="
QUESTION = {
    "id": "q1",
    "question": " Which one? ",
    "image": "",
    "answer": "The second",
    "answer_type": "exactMatch",
    "category": "Math",
    "raw_subject": "Algebra",
    "rationale": "It is.",
}


@pytest.fixture
def hub(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return fake_hub


def serve(hub: FakeHub, *questions: dict[str, object]) -> None:
    hub.huggingface(SOURCE.repo, SOURCE.path, parquet(questions), is_gated=True)


def test_questions_become_rows_with_images(hub: FakeHub, tmp_path: Path) -> None:
    serve(hub, QUESTION, {**QUESTION, "id": "q2", "image": IMAGE})
    plain, seen = read_rows(prepare(tmp_path / "hle.jsonl"))
    assert (plain["question"], plain["expected_answer"], plain["subset"]) == ("Which one?", "The second", "Math")
    system, user = plain["responses_create_params"]["input"]
    assert (system["role"], user["content"]) == ("system", "Which one?")
    assert seen["responses_create_params"]["input"][1]["content"] == [
        {"type": "input_text", "text": "Which one?"},
        {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
    ]
    assert [row["metadata"]["has_image"] for row in (plain, seen)] == [False, True]
    assert plain.keys() == EXAMPLES[0].keys()


def test_text_only_questions_have_own_description() -> None:
    described = {each.name: each.description for each in catalog.benchmarks(print)}
    assert described["hle/text_only"] == "Humanity's Last Exam: the questions without an image, graded by a judge"
    assert "2,500" in str(described["hle"])


def test_text_only_leaves_out_images(hub: FakeHub, tmp_path: Path) -> None:
    serve(hub, {**QUESTION, "image": IMAGE}, QUESTION, {**QUESTION, "image": None})
    rows = list(read_rows(prepare(tmp_path / "hle.jsonl", text_only=True)))
    assert [row["metadata"]["has_image"] for row in rows] == [False, False]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"answer": ""}, "row 2: column 'answer' is empty."),
        ({"image": "http://example.org/x.png"}, "row 2: column 'image' must be empty or begin with 'data:image/'"),
    ],
)
def test_bad_cell_is_reported_or_skipped(
    hub: FakeHub, tmp_path: Path, changes: dict[str, object], problem: str
) -> None:
    serve(hub, QUESTION, {**QUESTION, **changes})
    with pytest.raises(DataError) as caught:
        prepare(tmp_path / "hle.jsonl")
    assert problem in str(caught.value)
    assert len(list(read_rows(prepare(tmp_path / "hle.jsonl", skip_bad=True)))) == 1


def test_missing_column_is_reported(hub: FakeHub, tmp_path: Path) -> None:
    serve(hub, {name: value for name, value in QUESTION.items() if name != "category"})
    with pytest.raises(DataError, match="column 'category' is missing"):
        prepare(tmp_path / "hle.jsonl")


def test_gated_file_needs_a_token(fake_hub: FakeHub, tmp_path: Path) -> None:
    serve(fake_hub, QUESTION)
    with pytest.raises(DataError, match=r"Accept the terms on .*/cais/hle"):
        prepare(tmp_path / "hle.jsonl")


async def test_only_right_answers_are_rewarded() -> None:
    server = make_server(EquivalenceServer, model=LiteralJudge(*LABELS))
    async with serving(server):
        for row in EXAMPLES:
            right = row["expected_answer"]
            answers = {f"Explanation: It follows.\nAnswer: {right}": 1.0, right: 1.0, "": 0.0, "Answer:": 0.0}
            answers |= {row["question"]: 0.0, f"Answer: {right} or not": 0.0, f"<think>{right}</think>No": 0.0}
            for text, reward in answers.items():
                async with rollout(server, **row) as attempt:
                    assert (await attempt.verify(reply(text))).reward == reward, text


async def test_injected_instructions_are_not_rewarded() -> None:
    server = make_server(EquivalenceServer, model=GullibleJudge(*LABELS))
    async with serving(server):
        for text in injections(LABELS[0]):
            async with rollout(server, **EXAMPLES[0]) as attempt:
                assert (await attempt.verify(reply(text))).reward == 0.0, text


def test_examples_are_valid_requests() -> None:
    assert [row["metadata"]["has_image"] for row in EXAMPLES] == [False] * 4 + [True]
    for row in EXAMPLES:
        assert BaseRunRequest.model_validate(row).responses_create_params.input
