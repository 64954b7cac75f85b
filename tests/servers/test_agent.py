"""Signatures of an agent's methods, and how they receive and pass on a rollout's id."""

from typing import Any

import httpx
import pytest
from fastapi import Request, Response
from fastapi.testclient import TestClient

from nemo_gym import (
    AggregateMetrics,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    JudgeFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    current_rollout_id,
    get_response_json,
)
from nemo_gym.testing import make_server, on_a_port, reply, serving
from tests.each_case import each_case

ROW = {"responses_create_params": {"input": "hi"}}


def graded(body: BaseRunRequest, reward: float = 1.0) -> BaseVerifyResponse:
    return BaseVerifyResponse(
        responses_create_params=body.responses_create_params, response=reply(str(current_rollout_id())), reward=reward
    )


class BodyOnly(SimpleResponsesAPIAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return reply(str(current_rollout_id()))

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        return graded(body)


class RequestFirst(SimpleResponsesAPIAgent):
    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return reply(f"{current_rollout_id()}{request.url.path}")

    async def run(self, request: Request, body: BaseRunRequest) -> BaseVerifyResponse:
        assert request.url.path == "/run"
        return graded(body)


class WithResponse(SimpleResponsesAPIAgent):
    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        response.set_cookie("kept", "responses")
        return reply(str(current_rollout_id()))

    async def run(self, request: Request, response: Response, body: BaseRunRequest) -> BaseVerifyResponse:
        response.set_cookie("kept", "run")
        return graded(body)


class RequestOnly(SimpleResponsesAPIAgent):
    async def responses(self, request: Request) -> dict[str, Any]:
        return await request.json()

    async def run(self, request: Request) -> dict[str, Any]:
        return {**await request.json(), "seen": current_rollout_id()}


def client_of(cls: type[SimpleResponsesAPIAgent], **settings: Any) -> TestClient:
    return TestClient(make_server(cls, **settings).setup_webserver())


def text_of(answer: Any) -> str:
    return NeMoGymResponse.model_validate(answer.json()).output_text


@each_case("cls", [BodyOnly, RequestFirst, WithResponse])
def test_run_and_responses_accept_each_signature(cls):
    client = client_of(cls)
    answer = client.post("/run", json={**ROW, "_ng_rollout_id": "r1"})
    assert (answer.status_code, answer.json()["reward"]) == (200, 1.0)
    assert text_of(client.post("/v1/responses", json={"input": "hi"})).startswith("None")
    assert answer.cookies.get("kept") == ("run" if cls is WithResponse else None)


def test_run_may_take_only_the_request():
    answer = client_of(RequestOnly).post("/run", json={"any": "thing", "_ng_rollout_id": "r1"})
    assert answer.json() == {"any": "thing", "_ng_rollout_id": "r1", "seen": "r1"}


@each_case("row", [[], "row", 5, None, {"_ng_rollout_id": ""}, {"_ng_attempt_index": "x", "_ng_rollout_id": "r"}])
async def test_row_that_cannot_be_run_is_the_callers_mistake(row):
    async with on_a_port(make_server(RequestOnly, name="agent")) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/run", json=row)
    assert (answer.status_code, answer.json()["failure_class"]) == (422, "invalid_task"), answer.text


@each_case(
    ("path", "headers", "row", "seen"),
    [
        ("/run", {}, {}, "None"),
        ("/run", {}, {"_ng_rollout_id": "mine"}, "mine"),
        ("/run", {}, {"_ng_rollout_id": "mine", "_ng_attempt_index": 2}, "mine-a2"),
        ("/run", {}, {"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ("/run", {"x-nemo-gym-rollout": "h.1"}, {"_ng_rollout_id": "mine"}, "h.1"),
        ("/ng-rollout/p-1/run", {}, {}, "p-1"),
        ("/ng-rollout/p-1/training-token-capture/run", {}, {}, "p-1"),
        ("/ng-rollout/p-1/run", {"x-nemo-gym-rollout": "h.1"}, {"_ng_rollout_id": "mine"}, "p-1"),
        ("/run", {"x-nemo-gym-rollout": "not an id"}, {}, "None"),
        ("/run", {"x-nemo-gym-rollout": "-1"}, {}, "None"),
    ],
)
def test_run_finds_rollout_in_prefix_header_or_row(path, headers, row, seen):
    answer = client_of(BodyOnly).post(path, json={**ROW, **row}, headers=headers)
    assert answer.json()["response"]["output"][0]["content"][0]["text"] == seen


@each_case(
    ("path", "status"),
    [
        ("/ng-rollout/p-1/v1/responses", 200),
        ("/ng-rollout/p-1/training-token-capture/v1/responses", 200),
        ("/ng-rollout/p-1/training-token-captures/v1/responses", 404),
        ("/ng-rollout/p%0A/v1/responses", 404),
        ("/ng-rollout/-p/v1/responses", 404),
        ("/ng-rollout//v1/responses", 404),
        ("/ng-rollout/p-1", 404),
        ("/ng-rollout/p-1/training-token-capture", 404),
    ],
)
def test_only_a_valid_rollout_prefix_is_stripped(path, status):
    answer = client_of(RequestFirst).post(path, json={"input": "hi"})
    assert answer.status_code == status
    if status == 200:
        assert text_of(answer) == f"p-1{path}"


def test_rollout_does_not_leak_into_the_next_request():
    client = client_of(BodyOnly)
    assert text_of(client.post("/ng-rollout/p-1/v1/responses", json={"input": "hi"})) == "p-1"
    assert text_of(client.post("/v1/responses", json={"input": "hi"})) == "None"


class Asking(BodyOnly):
    """Runs its rollout by calling another agent."""

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        other = await self.server_client.post("other", "/v1/responses", json=body.responses_create_params)
        return graded(body).model_copy(update={"response": NeMoGymResponse.model_validate(await other.json())})


@each_case(
    ("path", "row", "seen"),
    [("/run", {"_ng_rollout_id": "r1"}, "r1"), ("/ng-rollout/p-1/run", {}, "p-1"), ("/run", {}, "None")],
)
async def test_calls_to_other_servers_carry_the_rollout(path, row, seen):
    agent = make_server(Asking, servers=[make_server(BodyOnly, name="other")])
    async with serving(agent) as client:
        answer = await client.post(path, json={**ROW, **row})
    assert answer.json()["response"]["output"][0]["content"][0]["text"] == seen


ROWS = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}


class WithMetrics(BodyOnly):
    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        best = [max(row["reward"] for row in rows) for rows in tasks]
        return super().compute_metrics(tasks) | {"best": sum(best) / len(best), "tasks": len(tasks)}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return super().get_key_metrics(agent_metrics) | {"best": agent_metrics["best"]}


def test_agent_computes_metrics_of_its_own():
    rows = [{"_ng_task_index": task, "reward": reward} for task, reward in ((0, 0.0), (0, 1.0), (1, 0.0))]
    answer = client_of(WithMetrics).post("/aggregate_metrics", json={"verify_responses": rows}).json()
    assert answer["agent_metrics"].items() >= {"best": 0.5, "tasks": 2, "max/reward": 1.0}.items()
    assert answer["key_metrics"] == {"mean/reward": pytest.approx(1 / 3), "best": 0.5}
    plain = client_of(BodyOnly).post("/aggregate_metrics", json={"verify_responses": rows}).json()
    assert plain["key_metrics"] == {"mean/reward": pytest.approx(1 / 3)}


def test_metrics_are_aggregated_unless_verification_is_skipped():
    answer = client_of(BodyOnly).post("/aggregate_metrics", json=ROWS)
    assert answer.json()["agent_metrics"]["mean/reward"] == 0.5
    with pytest.warns(RuntimeWarning, match="verification was skipped"):
        skipped = client_of(BodyOnly, skip_verification=True).post("/aggregate_metrics", json=ROWS)
    assert skipped.json() == AggregateMetrics().model_dump()


def test_agent_must_define_both_methods():
    class Half(SimpleResponsesAPIAgent):
        async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
            return graded(body)

    with pytest.raises(TypeError, match="responses"):
        make_server(Half)


class Judged(SimpleResourcesServer):
    """Its judge never answers."""

    async def verify(self, body: BaseVerifyRequest) -> float:
        raise JudgeFailed("the judge is silent", server="judge")


class Forgetful(SimpleResponsesAPIAgent):
    """Returns only the fields of the base response, as many published agents do."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        row = {**body.model_dump(), "response": reply("Hello.").model_dump()}
        graded = await self.server_client.post("judged", "/verify", json=row)
        return BaseVerifyResponse.model_validate(await get_response_json(graded))


async def test_judge_failure_survives_an_agent_that_drops_fields():
    agent = make_server(Forgetful, name="forgetful", servers=[make_server(Judged, name="judged")])
    async with serving(agent) as client:
        answer = await client.post("/run", json={"responses_create_params": {"input": "hi"}})
    row = answer.json()
    assert (row["_ng_failure_class"], row["_ng_failure_judge_error"]) == ("judge_failed", "the judge is silent")
    assert row["response"]["output"][0]["content"][0]["text"] == "Hello."
