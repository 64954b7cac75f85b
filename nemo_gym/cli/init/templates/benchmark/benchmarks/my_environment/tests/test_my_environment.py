"""Tests of the preparation, and of the answers that earn a reward."""

from pathlib import Path

import pytest

from benchmarks.my_environment.prepare import prepare
from nemo_gym.contract import open_environment
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import reply, rollout

FOLDER = Path(__file__).parents[1]
EXPECTED = "<the expected answer>"

pytestmark = pytest.mark.asyncio


async def test_each_question_becomes_a_row(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl")))
    assert len(rows) == 8
    assert rows[0] == {
        "question": "How many sides does a hexagon have?",
        "expected_answer": "6",
        "subset": "geometry",
    }


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (f"Answer: {EXPECTED}", 1.0),
        (f"I first thought of 7.\nAnswer: 7\nNo.\nAnswer: {EXPECTED}", 1.0),
        ("Answer: 7", 0.0),
        (f"Answer: {EXPECTED} or 7", 0.0),
        (f"It is {EXPECTED}.", 0.0),
        (f"<think>Answer: {EXPECTED}</think>I do not know.", 0.0),
        ("Answer: …", 0.0),
        ("", 0.0),
    ],
)
async def test_only_expected_number_is_rewarded(answer, reward):
    with open_environment(FOLDER) as environment:
        for row in environment.rows:
            async with rollout(environment.server(), **row) as attempt:
                graded = await attempt.verify(reply(answer.replace(EXPECTED, row["expected_answer"])))
            assert graded.reward == reward
