"""Tests of the shown prompts, answers and verdicts of judges."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.viewer.judgements import judgements_of
from tests.viewer.rollout_rows import said


def call(prompt: str = "Is it right?", answer: str = "[[yes]]", label: str | None = "yes") -> dict[str, Any]:
    request = {"input": [{"role": "user", "content": prompt}]}
    return {"responses_create_params": request, "response": {"output": [said(answer)]}, "verdict_label": label}


def test_judge_calls_have_prompt_answer_and_verdict():
    one, two = judgements_of({"judge_evaluations": [call(), call(label=None)]})
    assert one == {
        "name": "judge, call 1",
        "prompt": "Is it right?",
        "answer": "[[yes]]",
        "verdict": "yes",
        "reward": None,
    }
    assert two["verdict"] is None


def test_system_message_of_the_judge_is_shown():
    asked = call()
    asked["responses_create_params"]["input"].insert(0, {"role": "system", "content": "Be strict."})
    assert judgements_of({"judge_evaluations": [asked]})[0]["prompt"] == "[system]\nBe strict.\n\n[user]\nIs it right?"


def test_rubric_calls_are_named_by_their_criteria():
    criteria = [
        {"name": "polite", "weight": 2.0, "is_met": True, "reason": "[[met]]"},
        {"name": "short", "weight": 1.0, "is_met": False, "reason": "too long"},
    ]
    found = judgements_of({"criteria": criteria, "judge_evaluations": [call(label="met"), call(label="not met")]})
    assert [(each["name"], each["verdict"], each["reward"]) for each in found] == [
        ("polite (weight 2.0)", "met", 1.0),
        ("short (weight 1.0)", "not met", 0.0),
    ]
    assert [each["answer"] for each in judgements_of({"criteria": criteria})] == ["[[met]]", "too long"]


def test_comparisons_with_others_are_verdicts():
    verdict = {"side": 1, "score_1": 3, "score_2": 5, "ranking": 6}
    [found] = judgements_of({"comparisons": [{"with": 2, "preference": 0.25, "verdicts": [verdict]}]})
    assert (found["name"], found["verdict"], found["reward"]) == ("compared with 2", "worse", 0.25)
    assert found["answer"] == "side 1, score_1 3, score_2 5, ranking 6"


def test_fields_of_other_environments_are_read():
    record = {"judge_prompt": "Same?", "judge_response": {"output": [said("No.")]}, "judge_verdict": False}
    [found] = judgements_of(record)
    assert (found["prompt"], found["answer"], found["verdict"]) == ("Same?", "No.", "False")


def test_many_long_judgements_are_cut():
    found = judgements_of({"judge_evaluations": [call("p" * 100_000, "a" * 100_000)] * 200})
    assert len(found) == 100
    assert sum(len(each["prompt"]) + len(each["answer"]) for each in found) < 1_000_000


@pytest.mark.parametrize(
    "anything", [None, 5, "x", {}, [5, {}, None], [{"responses_create_params": 5, "response": 5}]]
)
def test_hostile_fields_never_raise(anything: object):
    names = ("judge_evaluations", "judge_evaluation", "criteria", "comparisons", "judge_prompt", "judge_response")
    judgements_of(dict.fromkeys(names, anything))
