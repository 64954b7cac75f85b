"""Requests and responses of a rollout."""

from __future__ import annotations

import pytest

from nemo_gym.schemas.rollout import BaseVerifyRequest, BaseVerifyResponse, Graded
from nemo_gym.servers.group_verification import fields_of
from nemo_gym.testing import reply
from tests.each_case import each_case

BODY = BaseVerifyRequest(responses_create_params={"input": "hi"}, response=reply("Paris"))
MARKS = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full"}

UNMARKED = {"mask_sample": False, "failure_kind": None, "failure_reason": None}


def test_grade_masks_a_sample():
    graded = BaseVerifyResponse.grade(BODY, reward=0.0, **MARKS).model_dump(mode="json")
    assert {key: graded[key] for key in MARKS} == MARKS


class OwnResponse(BaseVerifyResponse):
    """A folder's own response class, which drops undeclared fields."""

    score: int = 0


def test_own_response_class_keeps_the_marks_it_sets():
    assert OwnResponse(**dict(BODY), reward=0.0, **MARKS).model_dump(include=MARKS.keys()) == MARKS
    assert not MARKS.keys() & OwnResponse(**dict(BODY), reward=1.0).model_dump().keys()
    assert "score" in OwnResponse.model_json_schema(mode="serialization")["properties"]


@each_case("reward", ["good", None, [1.0]])
def test_grade_rejects_what_is_not_a_number(reward):
    with pytest.raises(TypeError, match="grade: the reward must be a number, found "):
        BaseVerifyResponse.grade(BODY, reward=reward)


def test_dump_of_the_base_class_always_has_the_marks():
    assert BaseVerifyResponse(**dict(BODY), reward=1.0).model_dump(include=MARKS.keys()) == UNMARKED
    assert not MARKS.keys() & BaseVerifyResponse.grade(BODY, reward=1.0).model_dump().keys()


def test_grade_keeps_a_given_null():
    graded = BaseVerifyResponse.grade(BODY, reward=1.0, failure_reason=None)
    for each in (graded, Graded.model_validate_json(graded.model_dump_json())):
        assert each.model_dump(include={"failure_kind", "failure_reason"}) == {"failure_reason": None}


@each_case(("given", "added"), [({}, {}), ({"failure_reason": None}, {"failure_reason": None}), (MARKS, MARKS)])
def test_row_gets_only_the_marks_that_are_set(given, added):
    assert fields_of(BaseVerifyResponse.grade(BODY, reward=1.0, **given)) == {**added, "reward": 1.0}
