"""Rewards of equivalence_llm_judge with a fake judge."""

import re
from pathlib import Path

import pytest

from nemo_gym import DataError, InvalidTask, JudgeFailed
from nemo_gym.grading import PatternSearch
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, reply, rollout
from resources_servers.equivalence_llm_judge.app import EquivalenceServer
from resources_servers.equivalence_llm_judge.oracle import solve

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"
PLAIN = {"question": "Capital of France?", "expected_answer": "Paris"}
TAGGED = {**PLAIN, "template_metadata": {"output_regex": "<answer>(.*?)</answer>"}}
ANSWER = "I think <answer>Lutetia</answer>."


async def grade(text, *verdicts, row=PLAIN, **settings):
    """Return the graded row and the prompts of the judge."""
    model = FakeModel(verdicts or ["unexpected call"])
    server = make_server(EquivalenceServer, model=model, **settings)
    async with rollout(server, **row) as attempt:
        graded = await attempt.verify(reply(text))
    return graded, [request["input"][-1]["content"] for request in model.requests]


def judged_answer(prompt):
    return fenced("Answer B:", prompt)


def fenced(title, prompt):
    """Return the text after a title, between the lines with the prompt's code."""
    nonce = re.search("lines <<<([0-9a-f]+) and", prompt)[1]
    return prompt.partition(f"{title}\n<<<{nonce}\n")[2].partition(f"\n{nonce}>>>\n")[0]


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["uuid"])
async def test_example_rewards_its_oracle_but_not_silence(row):
    graded, asked = await grade(*solve(row), EQUAL, row=row)
    assert graded.reward == 1.0
    assert row["question"] in asked[0]
    assert row["expected_answer"] in judged_answer(asked[0])
    nothing, asked = await grade("", EQUAL, row=row)
    assert (nothing.reward, nothing.extracted_answer, nothing.judge_evaluations, asked) == (0.0, None, [], [])


def test_examples_cover_all_pattern_forms():
    regexes = [row.get("template_metadata", {}).get("output_regex") for row in EXAMPLES]
    assert {type(regex) for regex in regexes} == {str, list, type(None)}
    assert any(len(row["expected_answer"]) > 120 for row in EXAMPLES)


@pytest.mark.slow
async def test_judged_text_and_reward():
    cases = [
        (PLAIN, [EQUAL], {}, 1.0, [ANSWER]),
        (PLAIN, [DIFFERENT], {}, 0.0, [ANSWER]),
        (TAGGED, [EQUAL], {}, 1.0, ["Lutetia"]),
        (TAGGED, [DIFFERENT, EQUAL], {}, 0.5, ["Lutetia", ANSWER]),
        (TAGGED, [DIFFERENT, DIFFERENT], {}, 0.0, ["Lutetia", ANSWER]),
        (TAGGED, [DIFFERENT, EQUAL], {"reward_if_full_generation_succeeds": 0.25}, 0.25, ["Lutetia", ANSWER]),
        (TAGGED, [DIFFERENT, EQUAL], {"check_full_generation_on_fail": False}, 0.0, ["Lutetia"]),
        (TAGGED, [EQUAL], {"use_per_record_regex": False}, 1.0, [ANSWER]),
        (TAGGED, [EQUAL], {"extraction_length_threshold": 4}, 1.0, [ANSWER]),
        (TAGGED, [EQUAL], {"extraction_length_threshold": 5}, 1.0, ["Lutetia"]),
        ({**TAGGED, "expected_answer": "P" * 121}, [EQUAL], {}, 1.0, [ANSWER]),
        ({**TAGGED, "expected_answer": "P" * 121}, [EQUAL], {"extraction_length_threshold": None}, 1.0, ["Lutetia"]),
        (PLAIN, [EQUAL], {"response_extract_regex": r"think (.*)\."}, 1.0, ["<answer>Lutetia</answer>"]),
        (TAGGED, [EQUAL], {"response_extract_regex": r"think (.*)\."}, 1.0, ["Lutetia"]),
        (PLAIN, [EQUAL], {"response_extract_regex": "no such (thing)"}, 0.5, [ANSWER]),
        (PLAIN, [], {"response_extract_regex": "no such (thing)", "check_full_generation_on_fail": False}, 0.0, []),
        ({**PLAIN, "template_metadata": {"output_regex": ["no (.)", "(L.*?)<"]}}, [EQUAL], {}, 1.0, ["Lutetia"]),
        ({**PLAIN, "template_metadata": {"output_regex": []}}, [EQUAL], {}, 1.0, [ANSWER]),
    ]
    wrong = []
    for row, verdicts, settings, reward, judged in cases:
        graded, asked = await grade(ANSWER, *verdicts, row=row, **settings)
        labels = [verdict if verdict in (EQUAL, DIFFERENT) else None for verdict in verdicts]
        found = (
            graded.reward,
            [judged_answer(prompt) for prompt in asked],
            [evaluation["verdict_label"] for evaluation in graded.judge_evaluations],
        )
        if found != (reward, judged, labels[: len(judged)]):
            wrong.append((row, verdicts, settings, reward, judged, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("row", "verdicts", "reward", "calls", "why"),
    [
        (PLAIN, [EQUAL, EQUAL], 1.0, 2, "the judge finds the answer equivalent to the expected one"),
        (PLAIN, [EQUAL, DIFFERENT], 0.1, 2, "equivalent in only one order of the two (reward_if_swap_fails)"),
        (PLAIN, [DIFFERENT], 0.0, 1, "the judge does not find the answer equivalent"),
        (TAGGED, [DIFFERENT, EQUAL, EQUAL], 0.5, 3, "whole message equivalent (reward_if_full_generation_succeeds)"),
        (TAGGED, [DIFFERENT, EQUAL, DIFFERENT], 0.0, 3, "the judge does not find the whole message equivalent"),
    ],
)
async def test_swap_check_requires_both_orders(row, verdicts, reward, calls, why):
    graded, asked = await grade(ANSWER, *verdicts, row=row, check_twice_swap=True, reward_if_swap_fails=0.1)
    assert graded.reward == reward
    assert len(asked) == len(graded.judge_evaluations) == calls
    assert why in graded.why
    if calls == 2:
        assert judged_answer(asked[1]) == "Paris"
        assert fenced("Answer A:", asked[1]) == judged_answer(asked[0])


async def test_question_is_from_row_or_last_message():
    cases = [
        ({"question": "The row's own"}, "asked: (.*)", "The row's own"),
        ({}, "asked: (.*)", "what?"),
        ({}, "no such (thing)", "First read. asked: what?"),
        ({}, None, "First read. asked: what?"),
    ]
    wrong = []
    for fields, pattern, question in cases:
        messages = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "First read. asked: what?"}]
        row = {"expected_answer": "Paris", "responses_create_params": {"input": messages}, **fields}
        _, asked = await grade(ANSWER, EQUAL, row=row, question_extract_regex=pattern)
        if (found := fenced("Question:", asked[0])) != question:
            wrong.append((fields, pattern, question, found))
    assert wrong == []


async def test_custom_prompt_labels_and_system_message(tmp_path):
    path = tmp_path / "judge.txt"
    path.write_text("{question}|{expected_answer}|{generated_answer}|{{}}")
    model = FakeModel(["They are ALIKE."])
    server = make_server(
        EquivalenceServer,
        model=model,
        judge_prompt_template_fpath=str(path),
        judge_equal_label="alike",
        judge_not_equal_label="different",
        judge_system_message="Be fair.",
        judge_responses_create_params={"input": [], "max_output_tokens": 9},
    )
    async with rollout(server, **PLAIN) as attempt:
        assert (await attempt.verify(reply("{Lutetia}"))).reward == 1.0
    (asked,) = model.requests
    assert asked["max_output_tokens"] == 9
    assert [message["content"] for message in asked["input"]] == [
        "Be fair.", "Capital of France?|Paris|{Lutetia}|{}",
    ]  # fmt: skip


async def test_reasoning_is_not_judged():
    _, asked = await grade("<think>London?</think>Paris", EQUAL)
    assert judged_answer(asked[0]) == "Paris"


async def test_unclear_verdict_fails_the_rollout():
    cases = [
        (PLAIN, ["I cannot tell."], {}),
        (TAGGED, ["I cannot tell.", EQUAL], {}),
        (TAGGED, [DIFFERENT, f"I would not say {EQUAL}."], {}),
        (PLAIN, [EQUAL, "I cannot tell."], {"check_twice_swap": True}),
    ]
    for row, verdicts, settings in cases:
        with pytest.raises(JudgeFailed, match="did not decide on one of the labels"):
            await grade(ANSWER, *verdicts, row=row, **settings)


async def test_unavailable_judge_fails_the_rollout():
    async with rollout(make_server(EquivalenceServer), **PLAIN) as attempt:
        with pytest.raises(JudgeFailed, match="policy_model"):
            await attempt.verify(reply("Paris"))


@pytest.mark.parametrize(
    ("pattern", "limit_s", "message"),
    [("(A", 60.0, "is not a regular expression"), ("(a+)+$", 1.0, "did not finish within 1 s")],
)
async def test_invalid_or_endless_pattern_raises_invalid_task(pattern, limit_s, message):
    server = make_server(EquivalenceServer, model=FakeModel([EQUAL]))
    server._pattern_search = PatternSearch(time_limit_s=limit_s)
    async with rollout(server, **PLAIN, template_metadata={"output_regex": pattern}) as attempt:
        with pytest.raises(InvalidTask, match=f"template_metadata.output_regex: .* {message}"):
            await attempt.verify(reply("a" * 60 + "!"))


async def test_invalid_pattern_is_reported_despite_a_match():
    server = make_server(EquivalenceServer, model=FakeModel([EQUAL]))
    async with rollout(server, **PLAIN, template_metadata={"output_regex": ["Par.*", "(A"]}) as attempt:
        with pytest.raises(InvalidTask, match=r"template_metadata.output_regex: .* is not a regular"):
            await attempt.verify(reply("Paris"))


async def test_reply_contains_the_row():
    row = {**TAGGED, "options": ["a"], "metadata": {"x": 1}, "uuid": "u", "own": [None]}
    graded, _ = await grade(ANSWER, EQUAL, row=row)
    assert graded.extracted_answer == "Lutetia"
    assert {name: getattr(graded, name) for name in ("options", "metadata", "uuid", "own")} == {
        "options": ["a"], "metadata": {"x": 1}, "uuid": "u", "own": [None],
    }  # fmt: skip


def test_metrics_and_key_metrics():
    server = make_server(EquivalenceServer)
    metrics = server.compute_metrics([[{"reward": 0.5, "extracted_answer": "x"}, {"reward": 1.0}]])
    assert metrics["pass@1[avg-of-2]/accuracy"] == 75.0
    assert server.get_key_metrics(metrics)["pass@2/accuracy"] == 100.0


@pytest.mark.parametrize("answer", ["", "Paris"])
async def test_row_without_expected_answer_is_rejected(answer):
    with pytest.raises(DataError, match=r"the row.*'expected_answer'"):
        await grade(answer, EQUAL, row={**PLAIN, "expected_answer": ""})


async def test_expected_answer_may_be_a_number():
    graded, (prompt,) = await grade("In 1969.", EQUAL, row={**PLAIN, "expected_answer": 1969})
    assert (graded.reward, graded.expected_answer, "1969" in prompt) == (1.0, "1969", True)
