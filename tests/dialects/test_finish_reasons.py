"""Finish reasons of engines and providers."""

import logging

import pytest

from nemo_gym import DataError
from nemo_gym.dialects.finish_reasons import STANDARD, standard_reason
from nemo_gym.http.model_replies import BROKEN_OFF

URL = "http://x/v1"


def choice(reason, **message):
    return {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": None, **message}}


@pytest.mark.parametrize(("expected", "names"), STANDARD.items())
def test_known_reasons_are_converted(expected, names):
    for name in names:
        for written in (name, name.upper(), name.replace("_", "-"), name.replace("_", " "), f"{name}: DETAIL"):
            assert standard_reason(choice(written), URL) == expected


def test_no_reason_has_two_meanings():
    names = [*BROKEN_OFF, *(name for names in STANDARD.values() for name in names)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "message", [{"content": "Hi"}, {"reasoning": "So"}, {"tool_calls": [{"id": "1"}]}, {"refusal": "No."}]
)
@pytest.mark.parametrize("reason", [None, "", "because"])
def test_unclear_reason_of_an_answer_means_stop(reason, message):
    assert standard_reason(choice(reason, **message), URL) == "stop"


@pytest.mark.parametrize(
    ("reason", "said"),
    [(None, "without a finish_reason"), ("because", "with the finish_reason 'because'")],
)
def test_unclear_reason_of_an_empty_answer_fails(reason, said):
    for content in (None, "", []):
        with pytest.raises(DataError, match=f"{URL} returned an empty answer {said}"):
            standard_reason(choice(reason, content=content), URL)


def test_unknown_reason_is_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    for reason in ("odd", "ODD", None, "stop", "odd", None):
        standard_reason(choice(reason, content="Hi"), "http://logged/v1")
    assert [record.getMessage() for record in caplog.records] == [
        f"http://logged/v1: {problem}. Such answers count as complete: check that they are not cut off."
        for problem in ("the finish_reason 'odd' is unknown", "an answer has no finish_reason")
    ]
