"""Requests and responses of a rollout."""

from __future__ import annotations

from nemo_gym.schemas.rollout import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.testing import reply

BODY = BaseVerifyRequest(responses_create_params={"input": "hi"}, response=reply("Paris"))
MARKS = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full"}


def test_grade_masks_a_sample():
    graded = BaseVerifyResponse.grade(BODY, reward=0.0, **MARKS).model_dump(mode="json")
    assert {key: graded[key] for key in MARKS} == MARKS


def test_unmasked_sample_carries_no_mask_fields():
    for graded in (BaseVerifyResponse.grade(BODY, reward=1.0), BaseVerifyResponse(**dict(BODY), reward=1.0)):
        assert not graded.mask_sample
        assert not MARKS.keys() & graded.model_dump().keys()
