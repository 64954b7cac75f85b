"""Verdicts, rewards and metrics of short_answer_judge with a fake judge."""

from collections import Counter
from pathlib import Path

import pytest

from nemo_gym import JudgeFailed
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, reply, rollout
from resources_servers.short_answer_judge.app import ShortAnswerServer, shares
from resources_servers.short_answer_judge.oracle import solve
from resources_servers.short_answer_judge.prepare import prepare

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
ROW = {"question": "Capital of France?", "expected_answer": "Paris"}
VERDICTS = (
    ("[[correct]]", "correct", 1.0),
    ("[[incorrect]]", "incorrect", 0.0),
    ("[[not attempted]]", "not attempted", 0.0),
)


async def grade(text, model, row=ROW):
    async with rollout(make_server(ShortAnswerServer, model=model), **row) as attempt:
        return await attempt.verify(reply(text))


@pytest.mark.parametrize(("label", "verdict", "reward"), VERDICTS)
async def test_verdict_decides_the_reward(label, verdict, reward):
    judge = FakeModel([f"It names Paris.\n{label}"])
    graded = await grade("<think>Rome</think>Paris", judge)
    assert (graded.verdict, graded.reward, len(graded.judge_evaluations)) == (verdict, reward, 1)
    assert graded.why == f"the judge's verdict is '{label}'; only '[[correct]]' earns the reward"
    (prompt,) = (request["input"][-1]["content"] for request in judge.requests)
    assert all(f"\n{part}\n" in prompt for part in (*ROW.values(), "Paris"))
    assert "Rome" not in prompt


async def test_examples_reward_their_oracle():
    for row in EXAMPLES:
        assert (await grade(*solve(row), FakeModel(["[[correct]]"]), row)).reward == 1.0


async def test_silence_is_not_an_attempt():
    judge = FakeModel(["[[correct]]"])
    graded = await grade("<think>Paris</think>", judge)
    assert (graded.verdict, graded.reward, judge.requests) == ("not attempted", 0.0, [])


async def test_unclear_verdict_fails_the_rollout():
    for text in ("I cannot tell.", "Either [[correct]] or [[incorrect]]", ""):
        with pytest.raises(JudgeFailed, match="did not decide on one of the labels"):
            await grade("Paris", FakeModel([text]))
    with pytest.raises(JudgeFailed, match="policy_model"):
        await grade("Paris", None)


def test_f_score_is_the_harmonic_mean():
    found = shares(Counter({"correct": 30, "incorrect": 20, "not attempted": 50}))
    assert found == pytest.approx(
        {"correct": 30, "incorrect": 20, "not_attempted": 50, "accuracy_given_attempted": 60, "f_score": 40}
    )
    assert shares(Counter({"not attempted": 3})) == {
        "correct": 0.0, "incorrect": 0.0, "not_attempted": 100.0, "accuracy_given_attempted": 0.0, "f_score": 0.0,
    }  # fmt: skip
    assert shares(Counter()) == {}


def test_metrics_contain_shares_and_pass_rates():
    server = make_server(ShortAnswerServer)
    rows = [{"reward": 1.0, "verdict": "correct"}, {"reward": 0.0, "verdict": "incorrect"}]
    metrics = server.compute_metrics([rows])
    assert (metrics["correct"], metrics["pass@2/accuracy"], metrics["f_score"]) == (50.0, 100.0, 50.0)
    assert server.get_key_metrics(metrics)["accuracy_given_attempted"] == 50.0


def test_made_rows_differ(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 500, split="validation")))
    assert len({row["question"] for row in rows}) == 500
