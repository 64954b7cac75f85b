"""Requests and responses of a rollout."""

from __future__ import annotations

import pytest

from nemo_gym.schemas.rollout import BaseVerifyRequest, BaseVerifyResponse, Graded
from nemo_gym.testing import reply
from tests.each_case import each_case

BODY = BaseVerifyRequest(responses_create_params={"input": "hi"}, response=reply("Paris"))
MARKS = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full"}


def test_grade_masks_a_sample():
    graded = BaseVerifyResponse.grade(BODY, reward=0.0, **MARKS).model_dump(mode="json")
    assert {key: graded[key] for key in MARKS} == MARKS


class OwnResponse(BaseVerifyResponse):
    """A published folder's own response class, which drops undeclared fields."""

    score: int = 0


def test_own_response_class_keeps_the_marks_it_sets():
    assert OwnResponse(**dict(BODY), reward=0.0, **MARKS).model_dump(include=MARKS.keys()) == MARKS
    assert not MARKS.keys() & OwnResponse(**dict(BODY), reward=1.0).model_dump().keys()
    assert OwnResponse(**dict(BODY), reward=1.0).failure_kind is None


@each_case("reward", ["good", None, [1.0]])
def test_grade_rejects_what_is_not_a_number(reward):
    with pytest.raises(TypeError, match="grade: the reward must be a number, found "):
        BaseVerifyResponse.grade(BODY, reward=reward)


def test_grade_keeps_a_given_null():
    graded = BaseVerifyResponse.grade(BODY, reward=1.0, failure_reason=None)
    for each in (graded, Graded.model_validate_json(graded.model_dump_json())):
        assert each.model_dump(include={"failure_kind", "failure_reason"}) == {"failure_reason": None}


def test_unmasked_sample_carries_no_mask_fields():
    for graded in (BaseVerifyResponse.grade(BODY, reward=1.0), BaseVerifyResponse(**dict(BODY), reward=1.0)):
        assert not graded.mask_sample
        assert not MARKS.keys() & graded.model_dump().keys()
