"""Rewards of answer_match for right and for conventional wrong answers."""

from pathlib import Path

import pytest

from nemo_gym import InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.answer_match.app import AnswerMatchServer
from resources_servers.answer_match.oracle import solve
from resources_servers.answer_match.prepare import prepare

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
EXACT = {"expected_answer": "Addis Ababa"}
NUMBER = {"expected_answer": "1250.50", "grader": "number"}
CHOICE = {"expected_answer": "billing", "grader": "choice", "options": ["billing", "delivery", "billing question"]}
REGEX = {"expected_answer": r"16[:.]10|4:10 ?pm", "grader": "regex"}
CONTAINS = {"expected_answer": "14 days", "grader": "contains"}
NUMBER_WITHIN = {"expected_answer": "14", "grader": "contains"}
WRONG_FORMS = (
    "", "I do not know.", "Answer:", "answer", "Answer: Answer: ", "x" * 100_000, "\n" * 100_000,
    "<think>Answer: {right}</think>", "Answer: {right} or something else", "Answer: {right}\nor something else",
    "Answer: not {right}", "Answer: ~~{right}~~", "Answer: **~~{right}~~**", "~~{right}~~",
    "Answer: <del>{right}</del>",
    "Answer: {right}\nAnswer: I am not sure", "The reply that earns the reward is {right}\nThat is all.",
)  # fmt: skip
"""Hedged, echoed, partial, injected and unfinished replies; `{right}` is the right answer."""


async def rewards(row, texts, **settings):
    return [each.reward for each in await graded(row, texts, **settings)]


async def graded(row, texts, **settings):
    server = make_server(AnswerMatchServer, **settings)
    found = []
    async with serving(server):
        for text in texts:
            async with rollout(server, **row) as attempt:
                found.append(await attempt.verify(reply(text)))
    return found


async def test_why_compares_the_answers():
    cases = [
        (NUMBER, "Answer: 7", "the answer '7' does not match the expected '1250.50' (number)"),
        (REGEX, "16.10", "the answer '16.10' matches the expected '16[:.]10|4:10 ?pm' (regex)"),
        (CONTAINS, "14 days", "the text matches the expected '14 days' (contains)"),
        (EXACT, "One.\nTwo.", "no answer was found in the text (exact)"),
        (EXACT, "x" * 500, f"the answer '{'x' * 12}...{'x' * 13}' does not match the expected 'Addis Ababa' (exact)"),
    ]
    wrong = [(why, found) for row, text, why in cases if (found := (await graded(row, [text]))[0].why) != why]
    assert wrong == []


async def test_right_answers_earn_the_reward():
    cases = [
        (EXACT, ["Answer: Addis Ababa", "addis  ababa.", "**Answer:** *Addis Ababa*",
                 "Answer: Addis Ababa\n\nIt is the capital.",
                 "Answer:\n\nAddis Ababa",
                 "Final answer: 'Addis Ababa'", "Answer: Nairobi\nNo, wait.\nAnswer: Addis Ababa",
                 "<think>Nairobi?</think>Addis Ababa", r"Answer: $\text{Addis Ababa}$", "## Answer: Addis Ababa",
                 "Answer: ~~Nairobi~~ Addis Ababa"]),
        (NUMBER, ["Answer: 1250.5", "1,250.50", "Answer: $1,250.50", "Answer: 1250.50 euros", "Answer: €1250.50"]),
        (CHOICE, ["Answer: billing", "Billing", "Answer: [billing]", "Answer: \"billing\"."]),
        (REGEX, ["Answer: 16:10", "16.10", "Answer: 4:10 PM"]),
        (NUMBER_WITHIN, ["You get 14.", "(14)", "$14", "It is 13, 14, or 15.", "- 14", "a 14-day trial", "Covid-14"]),
        (CONTAINS, ["You have 14 days.", "Within **14 days**, please.", "It says:\nfourteen,\nthat is 14  DAYS"]),
    ]  # fmt: skip
    wrong = [(row, texts, found) for row, texts in cases if set(found := await rewards(row, texts)) != {1.0}]
    assert wrong == []


async def test_echoed_question_does_not_contain_the_answer():
    question = "Welcome Ada Lovelace to Oslo."
    answers = [question, f"You ask: {question}", f"{question}\n\nGood evening, Ada Lovelace!", "Ada Lovelace"]
    for given in (question, [{"role": "user", "content": question}]):
        row = {"expected_answer": "Ada Lovelace", "grader": "contains", "responses_create_params": {"input": given}}
        assert await rewards(row, answers) == [0.0, 0.0, 1.0, 1.0]


async def test_wrong_answers_earn_nothing():
    right = ((EXACT, "Addis Ababa"), (NUMBER, "1250.50"), (CHOICE, "billing"), (REGEX, "16:10"))
    cases = [(row, [form.replace("{right}", text) for form in WRONG_FORMS]) for row, text in right]
    cases += [
        (EXACT, ["Answer: Addis", "Answer: Addis Ababa, Ethiopia"]),
        (NUMBER, ["Answer: 1250", "Answer: 1250.50 or 1250.51", "Answer: between 1 and 2000", "Answer: 0x4e2"]),
        (CHOICE, ["Answer: billing, delivery", "Answer: bill", "Answer: returns", "Answer: billing question"]),
        (REGEX, ["Answer: 16:10 or 17:10", "Answer: not 16:10", "Answer: 16x10"]),
        (
            NUMBER,
            [
                "Answer: 1250.50 is wrong",
                "Answer: 1250.50 plus one",
                "Answer: 1250.50 times ten",
                "Answer: 1250.50 negative",
                "Answer: 1250.50 lakh",
            ],
        ),
        (
            NUMBER_WITHIN,
            ["14,000", "0.14", "3.14", "14.5", "-14", "14/15", "13 / 14", "-$14", ".14", "14:30", "10-14"],
        ),
        (CONTAINS, ["0.14 days", "-14 days"]),
        (CONTAINS, ["You have 114 days.", "14 daysies", "<think>14 days</think>Soon.", ""]),
    ]
    wrong = [(row, texts, found) for row, texts in cases if set(found := await rewards(row, texts)) != {0.0}]
    assert wrong == []


async def test_case_matters_only_if_configured():
    for row, text in ((EXACT, "addis ababa"), (CHOICE, "Billing"), (REGEX, "4:10 PM"), (CONTAINS, "14 DAYS")):
        assert await rewards(row, [text], case_sensitive=True) == [0.0], row
        assert await rewards(row, [text]) == [1.0], row


async def test_config_grader_overrides_the_rows():
    assert await rewards({**CHOICE, "options": None}, ["billing"], grader="exact") == [1.0]


async def test_oracle_matches_pattern_of_config_grader():
    row = {"expected_answer": "0?4:10", "example_match": "04:10"}
    assert await rewards(row, solve(row), grader="regex") == [1.0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**NUMBER, "expected_answer": "many"}, "'many' is not a number"),
        ({**CHOICE, "expected_answer": "sales"}, r"'sales' is not exactly one of the options \(billing, delivery"),
        ({**CHOICE, "options": ["Billing", "billing"]}, "'billing' is not exactly one of the options"),
        ({**CHOICE, "options": None}, r"options \(missing\)"),
        ({**REGEX, "expected_answer": "(a"}, "is not a regular expression"),
    ],
)
async def test_impossible_row_fails_the_rollout(row, message):
    with pytest.raises(InvalidTask, match=message):
        await rewards(row, ["Answer: 1"])


async def test_choice_that_is_not_offered_counts_as_none():
    async with rollout(make_server(AnswerMatchServer), **CHOICE) as attempt:
        assert (await attempt.verify(reply("Answer: sales"))).extracted_answer is None
        assert (await attempt.verify(reply("Answer: DELIVERY"))).extracted_answer == "delivery"


def test_metrics_have_subsets_and_options():
    server = make_server(AnswerMatchServer)
    row = {**CHOICE, "reward": 1.0, "extracted_answer": "billing", "subset": "shop"}
    metrics = server.compute_metrics([[row], [{**row, "expected_answer": "delivery", "reward": 0.0}]])
    keys = ("pass@1/accuracy", "shop/pass@1/accuracy", "option/billing/pass@1/accuracy")
    assert [metrics[key] for key in keys] == [50.0, 50.0, 100.0]
    assert metrics["option/delivery/pass@1/accuracy"] == 0.0


async def test_made_rows_differ_and_reward_the_oracle(tmp_path):
    splits = {}
    for split in ("train", "validation"):
        path = prepare(tmp_path / f"{split}.jsonl", 200, split=split)
        splits[split] = list(read_rows(path))
        questions = {row["question"] for row in splits[split]}
        assert len(questions) == 200
        server = make_server(AnswerMatchServer)
        async with serving(server):
            for row in splits[split]:
                async with rollout(server, **row) as attempt:
                    assert (await attempt.verify(reply(*solve(row)))).reward == 1.0, row
    assert not {row["question"] for row in splits["train"]} & {row["question"] for row in splits["validation"]}


def test_examples_cover_every_grader():
    assert {row["grader"] for row in EXAMPLES} == {"exact", "number", "choice", "regex", "contains"}
