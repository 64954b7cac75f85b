"""Rewards of math_with_judge, by comparison and by a judge."""

import asyncio
import re
from pathlib import Path

import pytest

from nemo_gym import DataError, JudgeFailed
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, reply, rollout, serving
from resources_servers.math_with_judge.app import EQUAL, NOT_EQUAL, MathWithJudgeServer
from resources_servers.math_with_judge.oracle import solve
from resources_servers.math_with_judge.prepare import prepare
from tests.data.real_files import real_file

pytestmark = pytest.mark.bare

pytest.importorskip("math_verify", reason="the extra 'math' is not installed")

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
ROW = {"question": "How many legs have two spiders?", "expected_answer": "16"}
WITHOUT_JUDGE = {"should_use_judge": False, "judge_model_server": None}


async def grade(text, *verdicts, row=ROW, **settings):
    """Return the graded row and the prompts of the judge."""
    model = FakeModel(verdicts or ["unexpected call"])
    server = make_server(MathWithJudgeServer, model=model, **settings)
    async with rollout(server, **row) as attempt:
        graded = await attempt.verify(reply(text))
    return graded, [request["input"][-1]["content"] for request in model.requests]


def fenced(title, prompt):
    """Return the text after a title, between the lines with the prompt's code."""
    nonce = re.search("lines <<<([0-9a-f]+) and", prompt)[1]
    return prompt.partition(f"{title}\n<<<{nonce}\n")[2].partition(f"\n{nonce}>>>\n")[0]


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["uuid"])
async def test_example_rewards_its_oracle_but_not_silence(row):
    graded, asked = await grade(*solve(row), row=row)
    assert (graded.reward, graded.library_reward, graded.judge_evaluations, asked) == (1.0, 1.0, None, [])
    assert graded.extracted_answer == row["expected_answer"]
    nothing, asked = await grade("", EQUAL, row=row)
    assert (nothing.reward, nothing.extracted_answer, asked) == (0.0, None, [])


@pytest.mark.parametrize(
    ("verdicts", "reward", "labels"),
    [
        ([f"The same.\n{EQUAL}", EQUAL], 1.0, [EQUAL, EQUAL]),
        ([EQUAL, NOT_EQUAL], 0.0, [EQUAL, NOT_EQUAL]),
        ([NOT_EQUAL, EQUAL], 0.0, [NOT_EQUAL]),
    ],
)
async def test_judge_must_say_equal_in_both_orders(verdicts, reward, labels):
    graded, asked = await grade(r"\boxed{16.5}", *verdicts)
    assert (graded.reward, graded.library_reward) == (reward, 0.0)
    decision = "order_decides" if len(labels) == 2 and not reward else labels[-1]
    assert graded.why == f"the answer does not equal the expected one by the rules; the judge's verdict is {decision}"
    assert [evaluation["verdict_label"] for evaluation in graded.judge_evaluations] == labels
    assert [evaluation["response"]["output"][0]["content"][0]["text"] for evaluation in graded.judge_evaluations] == (
        verdicts[: len(labels)]
    )
    assert len(asked) == len(labels)
    assert fenced("Answer A:", asked[0]) == "16"
    assert "16.5" in fenced("Answer B:", asked[0])
    assert all(fenced("Answer B:", swapped) == "16" for swapped in asked[1:])


@pytest.mark.parametrize("verdicts", [["I cannot tell."], ["", EQUAL], [f"I would not say {EQUAL}."], [EQUAL, "?"]])
async def test_unclear_verdict_fails_the_rollout(verdicts):
    with pytest.raises(JudgeFailed, match="did not decide"):
        await grade(r"\boxed{16.5}", *verdicts)


async def test_answer_cannot_end_its_own_fence():
    _, (asked,) = await grade("No number.", NOT_EQUAL)
    fake = asked.partition("Answer B:")[2].replace("No number.", "Sixteen, I should think.") + "I am sure."
    _, (asked,) = await grade(fake, NOT_EQUAL)
    assert fenced("Answer B:", asked) == fake.strip()


async def test_judge_reads_message_without_extracted_answer():
    _, asked = await grade("Sixteen, I should think.", NOT_EQUAL)
    assert fenced("Answer B:", asked[0]) == "Sixteen, I should think."


async def test_without_a_judge_the_comparison_decides():
    graded, asked = await grade(r"\boxed{15}", EQUAL, **WITHOUT_JUDGE)
    assert (graded.reward, graded.extracted_answer, graded.judge_evaluations, asked) == (0.0, "15", None, [])


def test_should_use_judge_requires_judge_model_server():
    with pytest.raises(DataError, match="judge_model_server must name a model server"):
        make_server(MathWithJudgeServer, judge_model_server=None)


async def test_unavailable_judge_fails_the_rollout():
    async with rollout(make_server(MathWithJudgeServer), **ROW) as attempt:
        with pytest.raises(JudgeFailed, match="policy_model"):
            await attempt.verify(reply(r"\boxed{15}"))


async def test_reply_contains_the_row():
    graded, _ = await grade(r"\boxed{16}", row={**ROW, "uuid": "a", "own": {"kept": [1, None]}})
    assert (graded.uuid, graded.own, graded.question) == ("a", {"kept": [1, None]}, ROW["question"])


HOSTILE = [
    r"\boxed{10^{10^{9}}+1}",
    r"\boxed{9999999!}",
    r"\boxed{" + r"\frac{1}{" * 300 + "1" + "}" * 301,
    r"\boxed{" + "(" * 5000,
    r"\boxed{" * 2000 + "}" * 2000,
    "$" * 10_001,
    "1" * 300_000,
    "1,2" * 20_000,
    "\\" * 10_000,
    "\x00\ud800".encode("utf-8", "replace").decode(),
]


@pytest.mark.slow
async def test_hostile_answers_do_not_delay_other_rollouts():
    server = make_server(MathWithJudgeServer, **WITHOUT_JUDGE, library_verifier_timeout_seconds=100)
    async with rollout(server, **ROW) as hostile, rollout(server, **ROW) as plain:
        # Start a worker, because one that is still starting could not be closed below.
        assert (await plain.verify(reply(r"\boxed{\sqrt{256}}"))).reward == 1.0
        under_way = asyncio.create_task(hostile.verify(reply(HOSTILE[0])))
        for _ in range(20):
            assert (await plain.verify(reply(r"\boxed{16}"))).reward == 1.0
        assert not under_way.done()
        server.equality.close()
        assert (await under_way).reward == 0.0


@pytest.mark.slow
async def test_hostile_answers_earn_nothing():
    server = make_server(MathWithJudgeServer, **WITHOUT_JUDGE, library_verifier_timeout_seconds=1)
    async with rollout(server, **ROW) as hostile:
        graded = await asyncio.gather(*(hostile.verify(reply(text)) for text in HOSTILE))
    assert [each.reward for each in graded] == [0.0] * len(HOSTILE)


STYLES = (
    "{}", "The answer is {}.", "So the final answer is **{}**.", "Therefore, she needs **{} apples**.", "#### {}",
    "She earns **${}**.", "It takes **{} minutes** in total.", r"Hence, $x = {}$.", "Answer: {}\n\nI hope this helps!",
    "Final Answer: The final answer is ${}$. I hope it is correct.", "=> {}", "The total is ${} ({} dollars).",
    r"\boxed{{{} \text{{ apples}}}}", r"\[\boxed{{{}}}\]",
)  # fmt: skip


@pytest.mark.slow
async def test_gsm8k_rows_reward_only_their_answers(tmp_path):
    gsm8k = real_file("gsm8k", "test_first200.jsonl")
    rows = list(read_rows(prepare(input=gsm8k, output=tmp_path / "gsm8k.jsonl")))
    assert len(rows) == 200
    server = make_server(MathWithJudgeServer, **WITHOUT_JUDGE)
    async with serving(server):
        for row, source in zip(rows, read_rows(gsm8k), strict=True):
            async with rollout(server, **row) as attempt:
                for text in (*solve(row), source["answer"]):
                    assert (await attempt.verify(reply(text))).reward == 1.0, row
                other, negative = rf"\boxed{{{row['expected_answer']}1}}", f"#### -{row['expected_answer']}"
                for text in ("", other, negative, row["question"]):
                    assert (await attempt.verify(reply(text))).reward == 0.0, row
                right, wrong = row["expected_answer"], f"{row['expected_answer']}1"
                for style in STYLES:
                    assert (await attempt.verify(reply(style.format(right, right)))).reward == 1.0, (style, row)
                    assert (await attempt.verify(reply(style.format(wrong, wrong)))).reward == 0.0, (style, row)
        assert server.equality._workers.pids() == []


async def test_metrics_include_reward_comparison_and_majority():
    server = make_server(MathWithJudgeServer)
    graded = [{"reward": 1.0, "library_reward": 0.0, "extracted_answer": "16"}] * 2
    wrong = [{"reward": 0.0, "library_reward": 0.0, "extracted_answer": "15", "subset": "geometry"}] * 2
    by_subset = server.compute_metrics([graded, wrong])
    assert (by_subset["pass@2/accuracy"], by_subset["geometry/pass@2/accuracy"]) == (50.0, 0.0)
    metrics = server.compute_metrics([graded])
    assert metrics["pass@1[avg-of-2]/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-2]/library_accuracy"] == 0.0
    assert metrics["majority@2/accuracy"] == 100.0
    assert "pass@2/accuracy" in server.get_key_metrics(metrics)


@pytest.mark.parametrize("answer", ["", r"\boxed{16}"])
async def test_row_without_expected_answer_is_rejected(answer):
    with pytest.raises(DataError, match=r"the row.*'expected_answer'"):
        await grade(answer, EQUAL, row={**ROW, "expected_answer": " "})


async def test_expected_answer_may_be_a_number():
    cases = [
        (16, "16"),
        (16.0, "16"),
        (-2.5, "-2.5"),
        (1e-7, "0.0000001"),
        (1e22, "1" + "0" * 22),
        (10**20, "10^{20}"),
    ]
    wrong = []
    for expected, answer in cases:
        row = {**ROW, "expected_answer": expected}
        right, _ = await grade(rf"\boxed{{{answer}}}", row=row, **WITHOUT_JUDGE)
        other, _ = await grade(r"\boxed{17}", row=row, **WITHOUT_JUDGE)
        if (right.reward, other.reward) != (1.0, 0.0):
            wrong.append((expected, right.reward, other.reward))
    assert wrong == []
    for expected in (True, None, [16], float("nan")):
        with pytest.raises(DataError, match=r"the row.*'expected_answer'"):
            await grade(r"\boxed{16}", row={**ROW, "expected_answer": expected}, **WITHOUT_JUDGE)
