"""The server: rewards over HTTP, rejected rows, metrics by kind, length and depth."""

import re
from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.long_context.app import LongContextServer
from resources_servers.long_context.oracle import solve
from resources_servers.long_context.prepare import KINDS, prepare

EXAMPLES = list(read_rows(Path(__file__).resolve().parents[1] / "data" / "example.jsonl"))
NUMBER = {"expected_answer": "58213", "grader": "number", "distractors": ["58312", "11002"]}
CITED = {"expected_answer": 46, "grader": "number", "sources": ["P10001", "P20002"]}


async def graded(row, text):
    async with rollout(make_server(LongContextServer), **row) as attempt:
        return await attempt.verify(reply(text))


async def test_oracle_earns_the_reward_for_every_kind(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 40, lengths=["4k"])))
    server = make_server(LongContextServer)
    earned = {}
    async with serving(server):
        for row in rows:
            async with rollout(server, **row) as attempt:
                earned.setdefault(row["subset"], []).append((await attempt.verify(reply(*solve(row)))).reward)
    assert earned == dict.fromkeys(KINDS, [1.0] * 4)


async def test_response_explains_the_reward():
    result = await graded(CITED, "Sources: P10001, P30003\nAnswer: 46")
    assert (result.reward, result.extracted_answer, result.cited) == (0.4, "46", ["P10001", "P30003"])
    assert result.reward_components == {"answer": 1.0, "citation_f1": 0.5, "penalty": 0.1}


async def test_names_of_several_words_are_valid_answers():
    row = {"expected_answer": "Dar es Salaam", "grader": "text"}
    assert [(await graded(row, text)).reward for text in ("Answer: dar es Salaam", "Answer: Dar")] == [1.0, 0.0]


async def test_distractors_are_counted_and_earn_nothing():
    texts = ("Answer: 58213", "Answer: 58,312", "Answer: 99999", "", "Answer: 58312 or 11002")
    results = [await graded(NUMBER, text) for text in texts]
    assert [(result.reward, result.distracted) for result in results] == [
        (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"expected_answer": "many", "grader": "number"}, "grader.*'many' is not a number"),
        ({"expected_answer": ["1"], "grader": "number"}, "grader.*'number' does not fit the expected_answer"),
        ({"expected_answer": "1", "grader": "list"}, "grader.*'list' does not fit the expected_answer"),
        ({"expected_answer": [], "grader": "list"}, "expected_answer.*answers must not be empty"),
        ({"expected_answer": ["A", " "], "grader": "list"}, "expected_answer.*answers must not be empty"),
        ({"expected_answer": "  ", "grader": "text"}, "expected_answer.*answers must not be empty"),
        ({**CITED, "sources": []}, "sources.*at least 1 item"),
    ],
)
async def test_impossible_row_fails_before_the_model_is_asked(row, message):
    async with serving(make_server(LongContextServer)) as client:
        answer = await client.post("/seed_session", json={"responses_create_params": {"input": []}, **row})
    assert answer.status_code == 422
    assert re.search(message, answer.text), answer.text


def test_metrics_are_by_kind_length_and_depth():
    def row(reward, **fields):
        return {**NUMBER, "reward": reward, "extracted_answer": "1", "distracted": 1.0 - reward, **fields}

    metrics = make_server(LongContextServer).compute_metrics(
        [
            [row(1.0, subset="one_needle", length_bucket="4k", depth=0.0)],
            [row(0.0, subset="one_needle", length_bucket="4k", depth=0.1999)],
            [row(1.0, subset="relevance", length_bucket="1m", depth=0.2)],
            [row(0.0, subset="relevance", length_bucket="1m", depth=1.0)],
            [row(0.0, subset="count", length_bucket="1m", depth=None, distractors=[])],
        ]
    )
    accuracy = {key.removesuffix("pass@1/accuracy"): value for key, value in metrics.items() if "pass@1/acc" in key}
    accuracy = {key: round(value) for key, value in accuracy.items() if not key.endswith("std_dev")}
    assert accuracy == {
        "": 40, "one_needle/": 50, "relevance/": 50, "count/": 0, "length/4k/": 50, "length/1m/": 33,
        "depth/0-20/": 50, "depth/20-40/": 100, "depth/80-100/": 0,
    }  # fmt: skip
    assert metrics["pass@1[avg-of-1]/distracted"] == 50.0
    assert "count/pass@1[avg-of-1]/distracted" not in metrics


def test_citation_scores_are_metrics():
    components = {"answer": 1.0, "citation_f1": 0.5, "penalty": 0.1}
    rollout_of = {**CITED, "reward": 0.4, "reward_components": components, "subset": "citations"}
    metrics = make_server(LongContextServer).compute_metrics([[rollout_of]])
    found = {name: metrics[f"citations/pass@1[avg-of-1]/{name}"] for name in ("accuracy", *components)}
    assert found == {"accuracy": 40.0, "answer": 100.0, "citation_f1": 50.0, "penalty": 10.0}


def test_examples_are_of_five_kinds():
    assert [row["subset"] for row in EXAMPLES] == [
        "one_needle", "similar_keys", "aggregate", "relevance", "citations"
    ]  # fmt: skip
