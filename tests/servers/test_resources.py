"""Return values of `verify`, the graded row, and the routes of a resources server."""

from decimal import Decimal
from typing import Any

import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from pydantic import ConfigDict
from starlette.responses import JSONResponse

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    EnvironmentFailed,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.testing import make_server, reply, rollout
from tests.each_case import each_case

ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "Hi"}], "metadata": {"a": "b"}},
    "id": 7,
    "nested": {"any": [1, None, {"thing": "ü"}]},
    "_ng_task_index": 3,
    "response": {**reply("Hello.").model_dump(mode="json"), "of_the_endpoint": {"x": 1}},
}


class VerifyRequest(BaseVerifyRequest):
    id: int


class Extended(BaseVerifyResponse):
    letter: str


class ExtendedAndOpen(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class Float(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        return 0.25


class Bool(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> bool:
        return True


class Whole(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> int:
        return 1


class OtherNumber(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest):
        return Decimal("0.5")


class Grades(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse.grade(body, reward=0.75, extracted="x", nested="replaced")


class GradesTruth(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse.grade(body, reward=True)


class Either(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float | BaseVerifyResponse:
        return 0.5 if body.id == 7 else BaseVerifyResponse.grade(body, reward=0.0)


class Unannotated(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest):
        return Extended(**body.model_dump(), reward=1.0, letter="A")


class Typed(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> Extended:
        return Extended(**body.model_dump(), reward=1.0, letter="A")


class Filtered(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return Extended(**body.model_dump(), reward=1.0, letter="A")


class Open(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> ExtendedAndOpen:
        return ExtendedAndOpen(**body.model_dump(), reward=1.0, letter="A")


class OwnAnswer(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return JSONResponse({"reward": 0.0, "_ng_failure_class": "judge_failed"})


class Refuses(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        raise HTTPException(status_code=409, detail="not now")


def verify(cls: type[SimpleResourcesServer], **fields: Any):
    return TestClient(make_server(cls).setup_webserver()).post("/verify", json={**ROW, **fields})


@each_case(
    ("cls", "added"),
    [
        (Float, {"reward": 0.25}),
        (Bool, {"reward": 1.0}),
        (Whole, {"reward": 1.0}),
        (OtherNumber, {"reward": 0.5}),
        (Grades, {"reward": 0.75, "extracted": "x", "nested": "replaced"}),
        (GradesTruth, {"reward": 1.0}),
        (Either, {"reward": 0.5}),
    ],
)
def test_reward_is_returned_with_the_unchanged_row(cls, added):
    graded = verify(cls).json()
    assert graded == {**ROW, **added}
    # `True == 1.0`, but a reward must not be a bool.
    assert type(graded["reward"]) is float


@each_case(("cls", "extra"), [(Unannotated, {"letter"}), (Typed, {"letter"}), (Filtered, set())])
def test_return_annotation_filters_a_custom_response_class(cls, extra):
    graded = verify(cls).json()
    assert set(graded) == {"responses_create_params", "response", "reward"} | extra
    assert graded["responses_create_params"]["input"] == [{"role": "user", "content": "Hi", "type": "message"}]


def test_open_response_class_keeps_extra_fields():
    graded = verify(Open).json()
    assert (graded["letter"], graded["id"]) == ("A", 7)
    assert graded["response"]["of_the_endpoint"] == {"x": 1}


def test_own_responses_and_http_exceptions_stay_unchanged():
    assert verify(OwnAnswer).json() == {"reward": 0.0, "_ng_failure_class": "judge_failed"}
    refusal = verify(Refuses)
    assert (refusal.status_code, refusal.json()) == (409, {"detail": "not now"})


class Number(SimpleResourcesServer):
    """Returns the row's number as the reward, in each possible way."""

    async def verify(self, body: VerifyRequest):
        reward = float(body.model_extra["number"])
        if body.id == 1:
            return BaseVerifyResponse.grade(body, reward=reward)
        return Extended.model_construct(reward=reward) if body.id == 2 else reward


class OpenRequest(VerifyRequest):
    model_config = ConfigDict(extra="allow")


class OpenNumber(Number):
    async def verify(self, body: OpenRequest):
        return await super().verify(body)


@each_case("way", [0, 1, 2])
@each_case("number", ["nan", "inf", "-inf"])
def test_reward_that_is_not_finite_is_rejected(way, number):
    message = rf"servers: test_resources\.py:\d+: verify returned the reward {number}, which is not finite"
    with pytest.raises(EnvironmentFailed, match=message):
        verify(OpenNumber, id=way, number=number)


class Forgets(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        body.model_dump()


def test_verify_without_return_value_is_reported():
    with pytest.raises(EnvironmentFailed, match=r"test_resources\.py:\d+: verify returned nothing\. Return a number"):
        verify(Forgets)


OTHERS = ["1", b"1", [1.0], (1.0, "x"), {1.0}, object()]


OTHERS = ["1", b"1", [1.0], (1.0, "x"), {1.0}, object()]


class ReturnsOther(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        return OTHERS[body.id]


@each_case(("index", "kind"), enumerate(["str", "bytes", "list", "tuple", "set", "object"]))
def test_verify_that_returns_another_type_is_reported(index, kind):
    found = rf"test_resources\.py:\d+: verify returned an? {kind}\. Return a number"
    with pytest.raises(EnvironmentFailed, match=found):
        verify(ReturnsOther, id=index)


class Seeds(Float):
    async def seed_session(self, body: BaseSeedSessionRequest) -> None:
        return None


class SeedAnswer(BaseSeedSessionResponse):
    board: str


class SeedsAnswer(Float):
    async def seed_session(self, body: BaseSeedSessionRequest) -> SeedAnswer:
        return SeedAnswer(board="8x8")


class SeedsMaybe(Float):
    async def seed_session(self, body: BaseSeedSessionRequest) -> SeedAnswer | None:
        return None


@each_case(("cls", "expected"), [(Float, {}), (Seeds, {}), (SeedsAnswer, {"board": "8x8"}), (SeedsMaybe, {})])
def test_seed_session_may_return_a_response_or_nothing(cls, expected):
    answer = TestClient(make_server(cls).setup_webserver()).post("/seed_session", json=ROW)
    assert (answer.status_code, answer.json()) == (200, expected)


class StatelessConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS


class Stateless(Float):
    config: StatelessConfig


@pytest.mark.parametrize(("cls", "mode"), [(Float, "unknown"), (Stateless, "stateless")])
def test_reverify_mode_comes_from_the_config(cls, mode):
    assert TestClient(make_server(cls).setup_webserver()).get("/reverify_mode").json() == mode


def test_metrics_of_graded_rows_are_aggregated():
    rows = [{"_ng_task_index": 0, "reward": reward} for reward in (0.0, 1.0)]
    answer = TestClient(make_server(Float).setup_webserver()).post(
        "/aggregate_metrics", json={"verify_responses": rows}
    )
    assert answer.json()["agent_metrics"]["mean/reward"] == 0.5


class Board(SessionState):
    size: int = 8


async def test_failing_verify_raises_and_keeps_the_session():
    class Fails(Float):
        async def verify(self, body: VerifyRequest, board: Board) -> float:
            raise ZeroDivisionError("of nothing")

    server = make_server(Fails)
    async with rollout(server, id=1) as attempt:
        with pytest.raises(ZeroDivisionError):
            await attempt.verify()
        assert len(server.sessions) == 1
    assert len(server.sessions) == 0


class HeadlineServer(SimpleResourcesServer):
    KEY_METRICS = ("mean/reward", "mean/missing", "pass@{k}/accuracy", "{subset}/pass@{k}/accuracy")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


def test_key_metrics_come_from_the_class():
    metrics = {"mean/reward": 0.5, "mean/id": 3.0, "pass@1/accuracy": 50.0, "pass@4/accuracy": 75.0, "pass@4/other": 0}
    assert make_server(HeadlineServer).get_key_metrics(metrics) == {"mean/reward": 0.5, "pass@4/accuracy": 75.0}


def test_key_metrics_may_be_per_subset():
    tasks = [[{"reward": 1.0, "level": "easy"}] * 2, [{"reward": 0.0, "level": "hard/2"}] * 2]
    metrics = {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "level")}
    assert make_server(HeadlineServer).get_key_metrics(metrics) == {
        "pass@2/accuracy": 50.0,
        "easy/pass@2/accuracy": 100.0,
        "hard/2/pass@2/accuracy": 0.0,
    }


class Expected(BaseVerifyRequest):
    expected: dict[str, Any]


class Emptying(SimpleResourcesServer):
    async def verify(self, body: Expected) -> float:
        body.expected["words"].clear()
        return 1.0


@pytest.mark.parametrize("length", [10, 1_000_000])
def test_verifier_that_changes_its_row_returns_the_row_unchanged(length):
    row = {"responses_create_params": {"input": "a" * length}, "expected": {"words": ["x", "y"]}}
    graded = TestClient(make_server(Emptying).setup_webserver()).post(
        "/verify", json={**row, "response": reply("x").model_dump(mode="json")}
    )
    assert graded.json()["expected"] == {"words": ["x", "y"]}
