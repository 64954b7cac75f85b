"""Sessions of an agent: the hooks that keep their state, and what happens if these or their caller fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import Request
from pydantic import Field, ValidationError

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIAgent,
)
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
    AgentSessionSetupError,
    AgentSessionState,
)
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.testing import make_server, on_a_port, reply, serving
from tests.each_case import each_case

OPEN, CLOSE = "/v1/agent_sessions", "/v1/agent_sessions/close"
SEED = {
    "agent_session_id": "a-1",
    "episode_id": {"rollout_id": "3-0", "attempt": 1},
    "task_id": {"taskset": "puzzles", "task_id": "plum"},
}
CLOSING = {"agent_session_id": "a-1", "episode_id": SEED["episode_id"]}
NOTHING_LEFT = {"agent_observations": None, "resources_cookies": {}}


@dataclass
class Notes(AgentSessionState):
    word: str


class Plain(SimpleResponsesAPIAgent):
    """An agent without state."""

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        state = self.agent_session_state(request)
        return reply(state.word if isinstance(state, Notes) else "nothing")

    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        raise NotImplementedError


class Keeper(Plain):
    """An agent that opens something for each session. The id of the task selects what fails."""

    opened: list[str] = Field(default_factory=list)
    closed: list[str] = Field(default_factory=list)
    begun: Any = Field(default_factory=asyncio.Event)
    ended: Any = Field(default_factory=asyncio.Event)

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> Notes:
        word = body.task_id.task_id
        self.opened.append(word)
        self.begun.set()
        state = Notes(request=body, word=word)
        if word == "halfway":
            raise AgentSessionSetupError(state, error=RuntimeError("the second program did not start"))
        if word == "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                raise AgentSessionSetupError(state, error=error) from error
        return state

    async def _close_agent_session_state(self, state: Notes) -> None:
        self.closed.append(state.word)
        self.ended.set()
        if state.word == "stuck":
            raise RuntimeError("the program does not end")


@asynccontextmanager
async def over_http(agent: SimpleResponsesAPIAgent) -> AsyncIterator[httpx.AsyncClient]:
    async with on_a_port(agent) as url, httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        yield client


def seed_of(word: str, session_id: str = "a-1") -> dict[str, Any]:
    return {**SEED, "agent_session_id": session_id, "task_id": {"taskset": "puzzles", "task_id": word}}


async def test_hooks_receive_the_request_and_its_state():
    keeper = make_server(Keeper, name="keeper")
    async with serving(keeper) as client:
        assert (await client.post(OPEN, json=SEED)).json() == {"agent_session_id": "a-1"}
        answer = (await client.post("/v1/responses", json={"input": "hi"})).json()
        assert answer["output"][0]["content"][0]["text"] == "plum"
        assert (await client.post(CLOSE, json=CLOSING)).json() == {"closed": True, **NOTHING_LEFT}
        assert (keeper.opened, keeper.closed) == (["plum"], ["plum"])


async def test_retried_calls_open_and_close_once():
    keeper = make_server(Keeper, name="keeper")
    async with serving(keeper) as client:
        opened = [(await client.post(OPEN, json=SEED)).json() for _ in range(2)]
        closed = [(await client.post(CLOSE, json=CLOSING)).json()["closed"] for _ in range(2)]
    assert (opened, closed) == ([{"agent_session_id": "a-1"}] * 2, [True, False])
    assert (keeper.opened, keeper.closed) == (["plum"], ["plum"])


async def test_failed_setup_closes_what_it_had_opened():
    keeper = make_server(Keeper, name="keeper")
    async with over_http(keeper) as client:
        answer = await client.post(OPEN, json=seed_of("halfway"))
        assert (answer.status_code, answer.json()["failure_class"]) == (500, "agent_failed")
        assert "the second program did not start" in answer.json()["detail"]
        assert (keeper.closed, (await client.post(CLOSE, json=CLOSING)).json()["closed"]) == (["halfway"], False)


async def test_closing_ends_an_unfinished_setup():
    keeper = make_server(Keeper, name="keeper")
    async with serving(keeper) as client:
        opening = asyncio.create_task(client.post(OPEN, json=seed_of("slow")))
        await keeper.begun.wait()
        assert (await client.post(CLOSE, json=CLOSING)).json()["closed"] is True
        assert keeper.closed == ["slow"]
        opening.cancel()


async def test_failed_close_is_reported_and_forgotten():
    async with over_http(make_server(Keeper, name="keeper")) as client:
        await client.post(OPEN, json=seed_of("stuck"))
        assert "the program does not end" in (await client.post(CLOSE, json=CLOSING)).json()["detail"]
        assert (await client.post(CLOSE, json=CLOSING)).json()["closed"] is False


async def test_session_id_belongs_to_one_episode():
    async with over_http(make_server(Keeper, name="keeper")) as client:
        await client.post(OPEN, json=SEED)
        answer = await client.post(OPEN, json=seed_of("pear"))
        assert answer.status_code == 409
        assert "'a-1' is already open for another episode" in answer.json()["detail"]


async def test_session_is_closed_only_for_its_episode():
    keeper = make_server(Keeper, name="keeper")
    async with over_http(keeper) as client:
        await client.post(OPEN, json=SEED)
        answer = await client.post(CLOSE, json={**CLOSING, "episode_id": {"rollout_id": "4-0"}})
        assert (answer.status_code, keeper.closed) == (409, [])
        assert (await client.post(CLOSE, json={"agent_session_id": "a-1"})).status_code == 422


class Reporter(Keeper):
    """An agent that uses the tools of its session, and reports what it did."""

    async def _close_agent_session_state(self, state: Notes) -> AgentCloseSessionResponse:
        await super()._close_agent_session_state(state)
        return AgentCloseSessionResponse(agent_observations={"source": "me"}, resources_cookies={"seat": "2"})

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        session_id = self._agent_session_id_from_request(request)
        if session_id is None:
            return reply(" ".join(access.name for access in self.effective_tool_accesses()))
        session = self._require_agent_session("lost" if body.input == "lost" else session_id)
        accesses = {access.name: access for access in self.effective_tool_accesses(session)}
        return reply(f"{accesses['words'].base_url} {accesses['notes'].connection.url} {len(accesses)}")


def access_to(name: str, url: str) -> dict[str, Any]:
    return {"kind": "direct_http", "name": name, "base_url": url}


async def test_session_reaches_its_tools_with_the_configured_ones():
    notes = {"kind": "mcp", "name": "notes", "connection": {"url": "http://notes"}}
    configured = [access_to("words", "http://configured"), notes]
    async with over_http(make_server(Reporter, name="reporter", tool_accesses=configured)) as client:

        async def said(words: str) -> str:
            answer = await client.post("/v1/responses", json={"input": words})
            return answer.json()["output"][0]["content"][0]["text"] if answer.is_success else str(answer.status_code)

        assert await said("hi") == "words notes"
        await client.post(OPEN, json={**SEED, "tool_accesses": [access_to("words", "http://mine")]})
        assert await said("hi") == "http://mine http://notes 2"
        assert await said("lost") == "409"
        closed = (await client.post(CLOSE, json=CLOSING)).json()
        assert closed == {"closed": True, "agent_observations": {"source": "me"}, "resources_cookies": {"seat": "2"}}


async def test_empty_session_id_is_rejected():
    async with over_http(make_server(Keeper, name="keeper")) as client:
        assert (await client.post(OPEN, json=seed_of("plum", ""))).status_code == 422


async def test_open_sessions_are_closed_with_the_server():
    keeper = make_server(Keeper, name="keeper")
    async with serving(keeper) as client:
        for word in ("stuck", "plum"):
            await client.post(OPEN, json=seed_of(word, session_id=word))
    assert sorted(keeper.closed) == ["plum", "stuck"]


async def test_idle_sessions_are_closed():
    keeper = make_server(Keeper, name="keeper", agent_session_idle_s=0.02)
    async with serving(keeper) as client:
        await client.post(OPEN, json=SEED)
        async with asyncio.timeout(60):
            await keeper.ended.wait()
        assert (await client.post(CLOSE, json=CLOSING)).json()["closed"] is False


async def test_agent_without_hooks_has_sessions_too():
    async with serving(make_server(Plain, name="plain")) as client:
        assert (await client.post(OPEN, json=SEED)).json() == {"agent_session_id": "a-1"}
        assert (await client.post("/v1/responses", json={"input": "hi"})).status_code == 200
        assert (await client.post(CLOSE, json=CLOSING)).json()["closed"] is True


class OwnRoutes(Plain):
    """An agent that replaces the routes' methods."""

    async def seed_agent_session(self, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        return AgentSeedSessionResponse(agent_session_id=f"mine-{body.task_id.task_id}", seen=body.tool_accesses)

    async def close_agent_session(self, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        return AgentCloseSessionResponse(closed=body.agent_session_id == "mine-plum")


async def test_agent_may_replace_the_session_methods():
    async with serving(make_server(OwnRoutes, name="own")) as client:
        opened = (await client.post(OPEN, json=SEED)).json()
        assert opened == {"agent_session_id": "mine-plum", "seen": []}
        closed = await client.post(CLOSE, json={**CLOSING, "agent_session_id": "mine-plum"})
        assert closed.json() == {"closed": True, **NOTHING_LEFT}


@each_case(
    ("changes", "where"),
    [
        ({"episode_id": "3-0"}, "episode_id"),
        ({"episode_id": {"rollout_id": "3-0", "attempt": -1}}, "episode_id.attempt"),
        ({"task_id": {"taskset": "puzzles"}}, "task_id.task_id"),
        ({"surprise": 1}, "surprise"),
        ({"tool_accesses": [{"kind": "carrier pigeon", "name": "words"}]}, "tool_accesses.0"),
        ({"tool_accesses": [{"kind": "mcp", "name": "words"}]}, "tool_accesses.0.mcp.connection"),
    ],
)
async def test_session_requests_are_strict(changes, where):
    async with serving(make_server(Plain, name="plain")) as client:
        answer = await client.post(OPEN, json={**SEED, **changes})
        assert answer.status_code == 422
        assert where in [".".join(map(str, each["loc"][1:])) for each in answer.json()["detail"]]
        incomplete = {key: SEED[key] for key in SEED if key != where.partition(".")[0]}
        assert (await client.post(OPEN, json=incomplete)).status_code == (
            422 if where.startswith(("episode_id", "task_id")) else 200
        )


def test_episode_id_is_frozen_and_names_its_capture():
    assert [EpisodeId(rollout_id="3-0", attempt=n).capture_key for n in (0, 2)] == ["3-0", "3-0-a2"]
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id="3-0").rollout_id = "4-0"
    assert TaskId(taskset="puzzles", task_id="plum") == TaskId.model_validate(SEED["task_id"])
