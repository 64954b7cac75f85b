"""The server's grading of rows, and its metrics over many of them."""

import asyncio
import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym import InvalidTask, ServerClient
from nemo_gym.grading import PatternSearch
from nemo_gym.jsonl import read_rows
from resources_servers.mcqa.app import McqaConfig, McqaServer, McqaVerifyRequest
from resources_servers.mcqa.grading import GRADING_MODES

FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
RIGHT_ANSWERS = [
    r"2 · (4 + 5) = 18, so \boxed{C}",
    r"It is \boxed{the Earth's shadow falls on the Moon}.",
    "It is not the largest city.\nAnswer: Canberra",
    "The robin is a bird and sings.\n**Answer**: (D)",
    "Nothing is copied. <choice>b</choice>",
]


def make_server(**settings) -> McqaServer:
    config = McqaConfig(host="0.0.0.0", port=8080, entrypoint="", name="mcqa", **settings)
    return McqaServer(config=config, server_client=MagicMock(spec=ServerClient))


def row(**fields):
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Which is a vowel?"}]},
        "options": [{"A": "O"}, {"B": "T"}],
        "expected_answer": "A",
        **fields,
    }


def answered(question, *texts):
    """Return the row with a response that consists of these assistant messages."""
    output = [
        {
            "id": f"message-{place}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        for place, text in enumerate(texts)
    ]
    return {
        **question,
        "response": {
            "id": "response",
            "created_at": 0,
            "model": "a-model",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
    }


def verify(question, *texts, **settings):
    with TestClient(make_server(**settings).setup_webserver()) as client:
        reply = client.post("/verify", json=answered(question, *texts))
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize(("question", "text"), [*zip(EXAMPLES, RIGHT_ANSWERS, strict=True)])
def test_example_rewards_only_its_right_answer(question, text):
    graded = verify(question, text)
    assert graded["reward"] == 1.0
    assert graded["extracted_answer"] == graded["expected_answer"] == question["expected_answer"]
    assert verify(question, "I do not know.")["reward"] == 0.0


def test_examples_cover_every_mode_and_a_pattern():
    assert {question["grading_mode"] for question in EXAMPLES} == set(GRADING_MODES)
    assert any("template_metadata" in question for question in EXAMPLES)
    assert len({question["metadata"]["subset"] for question in EXAMPLES}) == len(EXAMPLES) == 5


def test_labels_and_answers_may_be_numbers():
    numbered = row(options=[{"1": "O"}, {"2": "T"}], expected_answer=1, grading_mode="lenient_boxed")
    assert [verify(numbered, rf"\boxed{{{text}}}")["reward"] for text in ("O", "T")] == [1.0, 0.0]


def test_lone_surrogates_are_replaced_and_graded():
    body = json.dumps(answered(row(own="\udc00", metadata={"\ud83d": 1}), "\ud83d \\boxed{A}"))
    with TestClient(make_server().setup_webserver()) as client:
        reply = client.post("/verify", content=body, headers={"content-type": "application/json"})
    graded = reply.json()
    assert (reply.status_code, graded["reward"], graded["own"], graded["metadata"]) == (
        200,
        1.0,
        "\ufffd",
        {"\ufffd": 1},
    )


def test_reply_contains_row_letters_and_reward():
    question = row(
        expected_answer="a", grading_mode="lenient_boxed", uuid="row-1", metadata={"dataset": "letters"}, own=[1, 2]
    )
    graded = verify(question, r"\boxed{B}")
    assert graded["reward"] == 0.0
    assert graded["expected_answer"] == "A"
    assert graded["extracted_answer"] == "B"
    assert graded["why"] == "the answer chooses B, and A is expected"
    for field in ("options", "grading_mode", "uuid", "metadata", "own"):
        assert graded[field] == question[field]
    assert graded["response"]["output"][0]["content"][0]["text"] == r"\boxed{B}"


@pytest.mark.parametrize("text", ["", "A", "The answer is A", "x" * 1_000_000])
def test_unreadable_answer_earns_nothing(text):
    graded = verify(row(), text)
    assert graded["reward"] == 0.0
    assert graded["extracted_answer"] is None
    assert graded["why"] == "the answer does not choose an option, and A is expected"


def test_rollout_without_a_message_earns_nothing():
    assert verify(row())["reward"] == 0.0


def test_only_the_last_message_counts():
    assert verify(row(), r"\boxed{A}", r"\boxed{B}")["extracted_answer"] == "B"
    assert verify(row(), r"\boxed{A}", "Done.")["extracted_answer"] is None


def test_config_mode_overrides_the_rows_mode():
    cases = [
        ({}, {}, r"\boxed{A}", 1.0),
        ({}, {}, "Answer: A", 0.0),
        ({"grading_mode": None}, {}, r"\boxed{A}", 1.0),
        ({"grading_mode": "lenient_answer_colon"}, {}, "Answer: A", 1.0),
        ({"grading_mode": "lenient_answer_colon"}, {}, r"\boxed{A}", 0.0),
        ({"grading_mode": "lenient_answer_colon"}, {"grading_mode": "lenient_boxed"}, r"\boxed{A}", 1.0),
        ({"grading_mode": "lenient_boxed"}, {"grading_mode": "lenient_answer_colon"}, r"\boxed{A}", 0.0),
    ]
    wrong = [
        (in_row, in_config, text, reward, found)
        for in_row, in_config, text, reward in cases
        if (found := verify(row(**in_row), text, **in_config)["reward"]) != reward
    ]
    assert wrong == []


def test_row_pattern_precedes_its_mode():
    cases = [
        (r"pick (\w)", 1.0),
        ([r"take (\w)", r"pick (\w)"], 1.0),
        (None, 0.0),
        ("", 0.0),
        ([], 0.0),
    ]
    wrong = []
    for patterns, reward in cases:
        question = row(template_metadata={"output_regex": patterns, "template": 7})
        graded = verify(question, r"I pick A. \boxed{B}")
        found = (graded["reward"], graded["template_metadata"])
        if found != (reward, question["template_metadata"]):
            wrong.append((patterns, reward, found))
    assert wrong == []


def test_options_may_lack_texts_or_be_missing():
    assert verify(row(options=[{"A": None}, {"B": None}]), r"\boxed{A}")["reward"] == 1.0
    assert verify(row(options=None), r"\boxed{A}")["reward"] == 1.0


def test_letters_of_all_scripts_are_equal():
    texts = [r"\boxed{B}", r"\boxed{b}", r"\boxed{ب}", r"\boxed{খ}", r"\boxed{Ｂ}"]
    wrong = []
    for text in texts:
        for expected in ["B", "b", "ب", "খ"]:
            graded = verify(row(expected_answer=expected), text)
            if (found := (graded["reward"], graded["expected_answer"])) != (1.0, "B"):
                wrong.append((text, expected, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"expected_answer": "C"}, "'C' is not one of the options A, B. Fix the row."),
        ({"expected_answer": "The vowel"}, "'The vowel' is not one of the options A, B."),
        ({"expected_answer": ""}, "'' is not one of the options A, B."),
        ({"expected_answer": "7", "options": None}, "'7' is not a letter."),
        ({"expected_answer": "AB", "template_metadata": {"output_regex": "."}}, "'AB' is not one of the options"),
    ],
)
@pytest.mark.parametrize("text", [r"\boxed{A}", ""])
async def test_impossible_expected_answer_fails_the_rollout(fields, problem, text):
    body = McqaVerifyRequest.model_validate(answered(row(**fields), text))
    with pytest.raises(InvalidTask, match=f"mcqa: expected_answer: {problem}"):
        await make_server().verify(body)


async def test_options_of_the_same_letter_fail_the_rollout():
    options = [{"A": "Newton's constant"}, {"a": "an acceleration"}]
    body = McqaVerifyRequest.model_validate(answered(row(options=options), r"\boxed{A}"))
    with pytest.raises(InvalidTask, match=r"mcqa: options: the labels 'A' and 'a' are the same letter\. Fix"):
        await make_server().verify(body)


def test_pattern_may_find_a_letter_without_option():
    assert (
        verify(row(expected_answer="C", template_metadata={"output_regex": r"pick (\w)"}), "I pick C")["reward"] == 1.0
    )


@pytest.mark.parametrize("pattern", ["(A", ["fine", "(A"], ["A", "(A"]])
async def test_invalid_pattern_fails_the_rollout(pattern):
    body = McqaVerifyRequest.model_validate(answered(row(template_metadata={"output_regex": pattern}), "A"))
    with pytest.raises(InvalidTask, match=r"mcqa: template_metadata.output_regex: the pattern '\(A' is not a"):
        await make_server().verify(body)


async def test_endless_pattern_fails_only_its_rollout():
    server = make_server()
    server._pattern_search = PatternSearch(time_limit_s=5.0)
    endless = answered(row(template_metadata={"output_regex": "(a+)+$"}), "a" * 60 + "!")
    running = asyncio.create_task(server.verify(McqaVerifyRequest.model_validate(endless)))
    await asyncio.sleep(0.1)
    graded = await server.verify(McqaVerifyRequest.model_validate(answered(row(), r"\boxed{A}")))
    assert graded.reward == 1.0
    assert not running.done()
    with pytest.raises(InvalidTask, match="did not finish within 5 s"):
        await running
    await server.aclose()


@pytest.mark.parametrize(
    "wrong",
    [
        {"grading_mode": "guess"},
        {"options": ["O", "T"]},
        {"expected_answer": None},
        {"template_metadata": {"output_regex": 3}},
    ],
)
def test_invalid_row_is_rejected_with_its_field(wrong):
    with TestClient(make_server().setup_webserver()) as client:
        reply = client.post("/verify", json=answered(row(**wrong), r"\boxed{A}"))
    assert reply.status_code == 422
    assert next(iter(wrong)) in reply.text


def test_unknown_mode_in_config_is_rejected():
    with pytest.raises(ValidationError, match="grading_mode"):
        make_server(grading_mode="guess")


def test_stored_rollouts_can_be_graded_again():
    with TestClient(make_server().setup_webserver()) as client:
        assert client.get("/reverify_mode").json() == "stateless"


ONE_GRADED_ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "extracted_answer": "A"}


def graded_rows():
    """Return two tasks of two subsets with three attempts each: right, right, wrong; none, wrong, wrong."""
    letters = {0: ["A", "A", "B"], 1: [None, "B", "B"]}
    return [
        {
            "_ng_task_index": task,
            "_ng_rollout_index": attempt,
            "expected_answer": "A",
            "extracted_answer": letter,
            "reward": float(letter == "A"),
            "metadata": {"dataset": f"set-{task}"},
            "response": {"usage": {"input_tokens": 10, "output_tokens": 20 + attempt, "total_tokens": 30 + attempt}},
        }
        for task, attempts in letters.items()
        for attempt, letter in enumerate(attempts)
    ]


def aggregate(rows):
    with TestClient(make_server().setup_webserver()) as client:
        reply = client.post("/aggregate_metrics", json={"verify_responses": rows})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_metrics_cover_all_rows_and_each_subset():
    metrics = aggregate(graded_rows())["agent_metrics"]
    expected = {
        "pass@1/accuracy": 100 / 3,
        "pass@3/accuracy": 50.0,
        "pass@1[avg-of-3]/accuracy": 100 / 3,
        "majority@3/accuracy": 50.0,
        "pass@1[avg-of-3]/no_answer": 100 / 6,
        "set-0/pass@3/accuracy": 100.0,
        "set-0/majority@3/accuracy": 100.0,
        "set-1/pass@3/accuracy": 0.0,
        "set-1/pass@1[avg-of-3]/no_answer": 100 / 3,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_key_metrics_are_token_counts_and_largest_k():
    assert aggregate(graded_rows())["key_metrics"] == pytest.approx(
        {
            "mean/input_tokens": 10.0,
            "mean/output_tokens": 21.0,
            "pass@1[avg-of-3]/accuracy": 100 / 3,
            "pass@1[avg-of-3]/no_answer": 100 / 6,
            "pass@3/accuracy": 50.0,
            "majority@3/accuracy": 50.0,
            "set-0/pass@1[avg-of-3]/accuracy": 200 / 3,
            "set-1/pass@1[avg-of-3]/accuracy": 0.0,
        }
    )


def test_subset_is_read_from_row_or_metadata():
    cases = [
        ({"subset": "law", "metadata": {"subset": "x"}}, "law"),
        ({"metadata": {"subset": "law", "dataset": "x"}}, "law"),
        ({"metadata": {"dataset": "law"}}, "law"),
    ]
    wrong = []
    for place, subset in cases:
        metrics = aggregate(
            [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "extracted_answer": "A", **place}]
        )
        if (found := metrics["agent_metrics"][f"{subset}/pass@1/accuracy"]) != 100.0:
            wrong.append((place, subset, found))
    assert wrong == []


def test_rows_without_subset_have_no_subset_metrics():
    cases = [{}, {"metadata": None}, {"metadata": "plain words"}, {"metadata": {"topic": "law"}}]
    wrong = []
    for place in cases:
        metrics = aggregate(
            [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "extracted_answer": "A", **place}]
        )
        if [key for key in metrics["agent_metrics"] if key.endswith("/pass@1/accuracy")]:
            wrong.append(place)
    assert wrong == []


def test_config_defines_the_server_and_its_agent():
    config = yaml.safe_load((FOLDER / "configs" / "mcqa.yaml").read_text())
    server = config["mcqa"]["resources_servers"]["mcqa"]
    McqaConfig(host="127.0.0.1", port=1, name="mcqa", **server)
    assert (FOLDER / server["entrypoint"]).is_file()
    agent = config["mcqa_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["resources_server"] == {"type": "resources_servers", "name": "mcqa"}
    examples, *_ = agent["datasets"]
    assert (FOLDER.parents[1] / examples["jsonl_fpath"]).is_file()
