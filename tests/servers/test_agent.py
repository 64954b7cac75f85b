"""What an agent's methods may ask for, and how a rollout's id reaches them and goes on from them."""

from typing import Any

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
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
)
from nemo_gym.testing import make_server, reply, serving

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


@pytest.mark.parametrize("cls", [BodyOnly, RequestFirst, WithResponse])
def test_run_and_responses_take_what_they_ask_for(cls):
    client = client_of(cls)
    told = client.post("/run", json={**ROW, "_ng_rollout_id": "r1"})
    assert (told.status_code, told.json()["reward"]) == (200, 1.0)
    assert text_of(client.post("/v1/responses", json={"input": "hi"})).startswith("None")
    assert told.cookies.get("kept") == ("run" if cls is WithResponse else None)


def test_a_run_that_takes_only_the_request_reads_it_itself():
    told = client_of(RequestOnly).post("/run", json={"any": "thing", "_ng_rollout_id": "r1"})
    assert told.json() == {"any": "thing", "_ng_rollout_id": "r1", "seen": "r1"}


@pytest.mark.parametrize(
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
def test_a_run_knows_its_rollout_from_prefix_header_or_row(path, headers, row, seen):
    answer = client_of(BodyOnly).post(path, json={**ROW, **row}, headers=headers)
    assert answer.json()["response"]["output"][0]["content"][0]["text"] == seen


@pytest.mark.parametrize(
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
def test_the_prefix_is_stripped_where_it_is_one(path, status):
    answer = client_of(RequestFirst).post(path, json={"input": "hi"})
    assert answer.status_code == status
    if status == 200:
        assert text_of(answer) == "p-1/v1/responses"


def test_one_requests_rollout_is_not_the_nexts():
    client = client_of(BodyOnly)
    assert text_of(client.post("/ng-rollout/p-1/v1/responses", json={"input": "hi"})) == "p-1"
    assert text_of(client.post("/v1/responses", json={"input": "hi"})) == "None"


class Asking(BodyOnly):
    """Runs its rollout by asking another agent."""

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        other = await self.server_client.post("other", "/v1/responses", json=body.responses_create_params)
        return graded(body).model_copy(update={"response": NeMoGymResponse.model_validate(await other.json())})


@pytest.mark.parametrize(
    ("path", "row", "seen"),
    [("/run", {"_ng_rollout_id": "r1"}, "r1"), ("/ng-rollout/p-1/run", {}, "p-1"), ("/run", {}, "None")],
)
async def test_calls_to_other_servers_carry_the_rollout_on(path, row, seen):
    agent = make_server(Asking, servers=[make_server(BodyOnly, name="other")])
    async with serving(agent) as client:
        answer = await client.post(path, json={**ROW, **row})
    assert answer.json()["response"]["output"][0]["content"][0]["text"] == seen


ROWS = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}


def test_metrics_are_aggregated_unless_verification_is_skipped():
    told = client_of(BodyOnly).post("/aggregate_metrics", json=ROWS)
    assert told.json()["agent_metrics"]["mean/reward"] == 0.5
    with pytest.warns(RuntimeWarning, match="verification was skipped"):
        skipped = client_of(BodyOnly, skip_verification=True).post("/aggregate_metrics", json=ROWS)
    assert skipped.json() == AggregateMetrics().model_dump()


def test_an_agent_defines_both_of_its_methods():
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
    """Hands on only what the base response knows, as many published agents do."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        row = {**body.model_dump(), "response": reply("Hello.").model_dump()}
        graded = await self.server_client.post("judged", "/verify", json=row)
        return BaseVerifyResponse.model_validate(await get_response_json(graded))


async def test_a_judges_failure_is_told_even_by_an_agent_that_drops_what_it_does_not_know():
    agent = make_server(Forgetful, name="forgetful", servers=[make_server(Judged, name="judged")])
    async with serving(agent) as client:
        answer = await client.post("/run", json={"responses_create_params": {"input": "hi"}})
    row = answer.json()
    assert (row["_ng_failure_class"], row["_ng_failure_judge_error"]) == ("judge_failed", "the judge is silent")
    assert row["response"]["output"][0]["content"][0]["text"] == "Hello."


class WithSessions(BodyOnly):
    """Keeps something for each session that it is told of."""

    async def seed_agent_session(self, request: Request, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        return AgentSeedSessionResponse(agent_session_id=f"mine-{body.task_id}", seen=body.task_data)

    async def close_agent_session(self, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        return AgentCloseSessionResponse(closed=body.agent_session_id == "mine-t1")


async def test_an_agents_session_is_opened_and_closed_by_routes_of_its_own():
    async with serving(make_server(WithSessions, name="keeper")) as client:
        opened = await client.post("/v1/agent_sessions", json={"task_id": "t1", "task_data": {"a": 1}})
        assert opened.json() == {"agent_session_id": "mine-t1", "seen": {"a": 1}}
        closed = await client.post("/v1/agent_sessions/close", json={"agent_session_id": "mine-t1"})
        assert closed.json() == {"agent_session_id": None, "closed": True}


async def test_an_agent_that_keeps_nothing_answers_its_sessions_all_the_same():
    async with serving(make_server(BodyOnly, name="plain")) as client:
        opened = (await client.post("/v1/agent_sessions", json={"agent_session_id": "given"})).json()
        assert opened == {"agent_session_id": "given"}
        made = (await client.post("/v1/agent_sessions", json={})).json()["agent_session_id"]
        assert len(made) > 8
        assert (await client.post("/v1/agent_sessions/close", json=opened)).json()["closed"] is True
