"""`nemo_gym.verifier_fixture`: running a server's verifier cases as the tests of published folders do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.jsonl import write_rows
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import reply
from nemo_gym.verifier_fixture import VerifierFixture, exercise_verifier_fixture
from tests.each_case import each_case


class ExactVerifyRequest(BaseVerifyRequest):
    expected_answer: str


class ExactServer(SimpleResourcesServer):
    async def verify(self, body: ExactVerifyRequest) -> BaseVerifyResponse:
        if body.expected_answer == "broken":
            raise ValueError("the row is broken")
        if body.expected_answer == "chance":
            return BaseVerifyResponse(**body.model_dump(), reward=random.random())
        reward = float(body.response.output_text == body.expected_answer)
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


def exact_server() -> ExactServer:
    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="exact")
    return ExactServer(config=config, server_client=MagicMock(spec=ServerClient))


def case(kind: str, answer: str = "4", expected_answer: str = "4", **fields: Any) -> dict[str, Any]:
    request = {
        "responses_create_params": {"input": "2 + 2?"},
        "response": reply(answer).model_dump(mode="json"),
        "expected_answer": expected_answer,
    }
    return {"name": f"{kind} {answer}", "kind": kind, "request": request, **fields}


NOT_A_ROW = {"name": "no row", "kind": "malformed", "request": {}, "expected_error": "expected_answer"}


@pytest.fixture
def exercise(tmp_path):
    """Return a function that runs cases against the verifier; `fields` override those of the fixture."""

    async def put(*cases: dict[str, Any], **fields: Any):
        path = tmp_path / "verifier_cases.jsonl"
        write_rows(path, cases)
        fixture = VerifierFixture(
            **{"server_factory": exact_server, "request_model": ExactVerifyRequest, "cases_path": path, **fields}
        )
        return await exercise_verifier_fixture(fixture)

    return put


async def test_matching_cases_report_their_rewards(exercise):
    outcomes = await exercise(
        case("full_reward", expected_reward=1.0),
        case("zero_reward", "5", expected_reward=0.0),
        NOT_A_ROW,
        case("malformed", expected_answer="broken", expected_error="ValueError: the row is broken"),
        case("malformed", "", expected_reward=0.0),
        case("determinism", expected_reward=1.0),
    )
    assert [outcome.rewards for outcome in outcomes] == [(1.0,), (0.0,), (), (), (0.0,), (1.0, 1.0)]


@each_case(
    ("written", "expected"),
    [
        (case("full_reward", "5"), "expected 1, earned 0"),
        (case("zero_reward"), "expected 0, earned 1"),
        (case("full_reward", expected_reward=0.5), r"expected 0\.5, earned 1"),
        (case("malformed", expected_error="KeyError"), "expected an error with 'KeyError', earned 1"),
        ({**NOT_A_ROW, "expected_error": "KeyError"}, "expected 'KeyError': ValidationError"),
        (case("full_reward", expected_answer="broken"), "ValueError: the row is broken"),
        (case("determinism", expected_answer="chance"), "the second time"),
    ],
)
async def test_mismatched_case_is_reported_by_name(exercise, written, expected):
    with pytest.raises(
        AssertionError, match=rf"1 of 2 cases fail:\n{written['name']} \({written['kind']}\): .*{expected}"
    ):
        await exercise(case("full_reward"), written)


async def test_random_verifier_is_reseeded_before_each_case(exercise):
    (outcome,) = await exercise(case("determinism", expected_answer="chance"), reseed=lambda: random.seed(5))
    assert outcome.rewards[0] == outcome.rewards[1] == random.Random(5).random()


async def test_server_may_define_its_own_call(exercise):
    async def invoke(server: ExactServer, body: ExactVerifyRequest) -> dict[str, float]:
        graded = await server.verify(body)
        return {"reward": graded.reward / 2}

    (outcome,) = await exercise(case("full_reward", expected_reward=0.5), invoke=invoke)
    assert outcome.rewards == (0.5,)


@each_case(
    ("line", "expected"),
    [
        ({**NOT_A_ROW, "kind": "odd"}, r"cases\.jsonl:1: not a verifier case: kind"),
        ({**NOT_A_ROW, "extra": 1}, r"cases\.jsonl:1: .*extra"),
        ({**NOT_A_ROW, "expected_reward": 0.0}, "a reward or an error, not both"),
        ({**NOT_A_ROW, "expected_error": None}, "needs expected_error"),
    ],
)
async def test_invalid_case_reports_its_line_number(exercise, line, expected):
    with pytest.raises(ValueError, match=expected):
        await exercise(line)


async def test_file_without_cases_is_rejected(exercise):
    with pytest.raises(ValueError, match="no cases found"):
        await exercise()


def test_fixture_parameters_have_published_order():
    fixture = VerifierFixture(exact_server, ExactVerifyRequest, Path("tests/verifier_cases.jsonl"))
    assert (fixture.invoke, fixture.reseed) == (None, None)
