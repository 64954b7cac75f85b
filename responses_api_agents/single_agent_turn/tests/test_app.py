"""Episodes from row to reward, and what remains open after each kind of failure."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from pydantic import Field

from nemo_gym import (
    AgentCloseSessionResponse,
    AgentFailed,
    AgentSeedSessionRequest,
    AgentSessionState,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    EnvironmentFailed,
    InvalidTask,
    NeMoGymResponseCreateParamsNonStreaming,
    Overloaded,
    ResourcesSeedSessionRequest,
    RolloutTimedOut,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    current_rollout_id,
)
from nemo_gym.testing import make_server, reply, run, serving
from responses_api_agents.single_agent_turn.app import SingleAgentTurnServer

ROW = {"responses_create_params": {"input": "Say plum."}, "word": "plum", "_ng_task_index": 2, "_ng_rollout_index": 1}
FOREVER_S = 3600.0


class Words(SimpleResourcesServer):
    """An environment that logs its calls. `trouble` names the step that raises; after `slow `, the one that hangs."""

    seen: list[str] = Field(default_factory=list)
    seeds: list[Any] = Field(default_factory=list)
    trouble: str = ""
    sessions_seen: set[str] = Field(default_factory=set)

    async def step(self, name: str, request: Request) -> None:
        self.seen.append(name)
        self.sessions_seen.add(request.session["session_id"])
        if self.trouble == name:
            raise RuntimeError(f"{name} is broken")
        if self.trouble == f"slow {name}":
            await asyncio.sleep(FOREVER_S)

    async def seed_session(self, request: Request, body: ResourcesSeedSessionRequest) -> None:
        self.seeds.append(body)
        await self.step("seed", request)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> float:
        await self.step("verify", request)
        return float("plum" in body.response.output_text)

    async def close_session(self, request: Request) -> None:
        await self.step("close", request)


class Talker(SimpleResponsesAPIAgent):
    """An agent with sessions, which logs its calls to the same list."""

    seen: list[str] = Field(default_factory=list)
    trouble: str = ""
    rollouts: list[str | None] = Field(default_factory=list)
    accesses: list[Any] = Field(default_factory=list)
    asked: Any = Field(default_factory=asyncio.Event)

    async def step(self, name: str) -> None:
        self.seen.append(name)
        if self.trouble == name:
            raise RuntimeError(f"{name} is broken")
        if self.trouble == f"slow {name}":
            await asyncio.sleep(FOREVER_S)

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        await self.step("open agent")
        return AgentSessionState(request=body)

    async def _close_agent_session_state(self, state: AgentSessionState) -> None:
        await self.step("close agent")

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> Any:
        self.rollouts.append(current_rollout_id())
        self.asked.set()
        await self.step("responses")
        if self.trouble == "nonsense":
            return {"output": "none"}
        state = self.agent_session_state(request)
        self.accesses = state.request.tool_accesses if state else []
        return reply("plum" if state else "plum, without a session")

    async def run(self, body: BaseRunRequest) -> None:
        raise NotImplementedError


def environment_on(
    agent: Any = None, trouble: str = "", words: type[Words] = Words, **settings: Any
) -> SingleAgentTurnServer:
    resources = make_server(words, name="words")
    talker = agent or make_server(Talker, name="talker")
    resources.seen, resources.trouble = talker.__dict__.setdefault("seen", []), trouble
    if agent is None:
        talker.trouble = trouble
    return make_server(
        SingleAgentTurnServer,
        name="episodes",
        servers=[resources, talker],
        agent_server={"type": "responses_api_agents", "name": "talker"},
        resources_server={"type": "resources_servers", "name": "words"},
        **settings,
    )


def part(server: SingleAgentTurnServer, name: str) -> Any:
    return server.server_client._servers[name]


WHOLE = ["seed", "open agent", "responses", "close agent", "verify", "close"]


async def test_episode_calls_both_servers_in_order():
    server = environment_on()
    graded = await run(server, **ROW, note=[1])
    assert (graded.reward, graded.word, graded.note, graded.response.output_text) == (1.0, "plum", [1], "plum")
    assert part(server, "words").seen == WHOLE
    assert len(part(server, "words").sessions_seen) == 1
    assert part(server, "talker").rollouts == ["2-1"]


async def test_seed_describes_episode_and_task():
    server = environment_on()
    await run(server, **ROW, task_id="t-9", _ng_attempt_index=2, agent_ref={"name": "episodes"})
    (seed,) = part(server, "words").seeds
    assert (seed.episode_id.rollout_id, seed.episode_id.attempt) == ("2-1", 2)
    assert (seed.task_id.taskset, seed.task_id.task_id) == ("episodes", "t-9")
    assert seed.task_data == {"word": "plum", "task_id": "t-9"}


class Reporter(Talker):
    """An agent that calls the environment itself, and reports cookies and observations at the end."""

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        await self.step("close agent")
        return AgentCloseSessionResponse(agent_observations={"source": "talker"}, resources_cookies={"seat": "2"})


class Seats(Words):
    """An environment that reads a cookie of the agent's calls."""

    async def verify(self, request: Request, body: BaseVerifyRequest) -> float:
        await self.step("verify", request)
        return float(request.cookies.get("seat") == "2")


async def test_agent_session_reaches_the_environment_and_reports():
    server = environment_on(make_server(Reporter, name="talker"), words=Seats)
    graded = await run(server, **ROW)
    (access,) = part(server, "talker").accesses
    assert (access.kind, access.name, access.base_url) == ("direct_http", "words", "http://words:0")
    assert any(name.startswith("Seats___words") for name in access.cookies)
    assert (graded.reward, graded.ng_agent_observations) == (1.0, {"source": "talker"})
    assert part(server, "words").seen == WHOLE


class OldSeed(BaseSeedSessionRequest):
    word: str


class OldWords(Words):
    async def seed_session(self, request: Request, body: OldSeed) -> None:
        self.seeds.append(body.word)


async def test_negative_attempt_is_an_invalid_row():
    with pytest.raises(InvalidTask, match="_ng_attempt_index must be an integer of at least 0, found -1"):
        await run(environment_on(), _ng_attempt_index=-1)


async def test_older_environment_is_seeded_with_the_row():
    server = environment_on(words=OldWords, seed_with="row")
    assert (await run(server, **ROW)).reward == 1.0
    assert part(server, "words").seeds == ["plum"]
    with pytest.raises(InvalidTask, match="word"):
        await run(environment_on(words=OldWords), **ROW)


@pytest.mark.parametrize(
    ("trouble", "error", "reason", "calls"),
    [
        ("seed", EnvironmentFailed, "seed is broken", ["seed"]),
        ("open agent", AgentFailed, "open agent is broken", ["seed", "open agent", "close"]),
        ("responses", AgentFailed, "responses is broken", [*WHOLE[:4], "close"]),
        ("nonsense", AgentFailed, "is not a response", [*WHOLE[:4], "close"]),
        ("close agent", AgentFailed, "close agent is broken", [*WHOLE[:4], "close"]),
        ("verify", EnvironmentFailed, "verify is broken", WHOLE),
    ],
)
async def test_failed_step_fails_its_tier_and_closes_sessions(trouble, error, reason, calls):
    server = environment_on(trouble=trouble)
    with pytest.raises(error, match=reason) as raised:
        await run(server, **ROW)
    assert part(server, "words").seen == calls
    assert raised.value.tier == ("agent" if error is AgentFailed else "environment")


CALLS = {"slow seed": 1, "slow open agent": 2, "slow responses": 3, "slow verify": 4}
"""The number of the call that hangs, for each trouble within the time limit of an episode."""


@pytest.mark.parametrize(
    ("trouble", "setting", "where", "calls"),
    [
        ("slow seed", "default_episode_timeout_seconds", "/seed_session of words", ["seed"]),
        ("slow open agent", "default_episode_timeout_seconds", "/v1/agent_sessions of talker", [*WHOLE[:2], "close"]),
        ("slow responses", "default_episode_timeout_seconds", "/v1/responses of talker", [*WHOLE[:4], "close"]),
        ("slow close agent", "cleanup_timeout_seconds", "/v1/agent_sessions/close of talker", [*WHOLE[:4], "close"]),
        ("slow verify", "default_episode_timeout_seconds", "/verify of words", WHOLE),
    ],
)
async def test_each_wait_is_bounded_and_named(monkeypatch, trouble, setting, where, calls):
    if trouble in CALLS:
        # Only the call that hangs has little time left, because the others may be slow on a busy machine. The episode
        # reads the clock at its start, and before each call.
        readings = (1000.0 if number in (0, CALLS[trouble]) else 0.0 for number in count())
        clock = SimpleNamespace(monotonic=lambda: next(readings))
        monkeypatch.setattr("nemo_gym.published.single_turn.time", clock)
    server = environment_on(trouble=trouble, **{setting: 0.5})
    with pytest.raises(RolloutTimedOut, match=rf"{where} did not reply within {setting} \(0.5 s\)"):
        await run(server, **ROW)
    assert part(server, "words").seen == calls


@pytest.mark.parametrize("trouble", ["close", "slow close"])
async def test_failed_cleanup_after_grading_keeps_the_reward(trouble, caplog):
    class Graded(Words):
        async def verify(self, request: Request, body: BaseVerifyRequest) -> float:
            # Only the call that hangs has little time, because the others may be slow on a busy machine.
            server.config.cleanup_timeout_seconds = 0.2
            return await super().verify(request, body)

    server = environment_on(trouble=trouble, words=Graded)
    assert (await run(server, **ROW)).reward == 1.0
    assert "episodes: cleaning up rollout 2-1 failed" in caplog.text


async def test_full_queue_fails_as_overloaded():
    server = environment_on(trouble="slow responses", max_concurrent_episodes=1, queue_timeout_seconds=0.1)
    async with serving(server):
        first = asyncio.create_task(run(server, **ROW))
        await part(server, "talker").asked.wait()
        with pytest.raises(Overloaded, match=r"queue_timeout_seconds \(0.1 s\) passed while all max_concurrent"):
            await run(server, **ROW)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        # Cancelled episodes close their sessions and leave their slot.
        assert part(server, "words").seen == [*WHOLE[:4], "close"]
        part(server, "talker").trouble = ""
        assert (await run(server, **ROW)).reward == 1.0


async def test_queue_without_a_limit_waits_for_a_free_slot():
    server = environment_on(trouble="slow responses", max_concurrent_episodes=1, queue_timeout_seconds=None)
    async with serving(server):
        first = asyncio.create_task(run(server, **ROW))
        await part(server, "talker").asked.wait()
        part(server, "talker").trouble = ""
        second = asyncio.create_task(run(server, **ROW))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).reward == 1.0


async def test_skipped_verification_still_closes_sessions():
    server = environment_on(skip_verification=True, skip_verification_reward=0.5)
    graded = await run(server, **ROW)
    assert (graded.reward, graded.verification_skipped) == (0.5, True)
    assert part(server, "words").seen == [*WHOLE[:4], "close"]


class Sessionless(Talker):
    """An agent whose app has no session routes."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [each for each in app.router.routes if "agent_sessions" not in getattr(each, "path", "")]
        return app


async def test_agent_needs_no_session_routes():
    server = environment_on(make_server(Sessionless, name="talker"))
    assert (await run(server, **ROW)).reward == 1.0
    assert part(server, "words").seen == ["seed", "responses", "verify", "close"]


async def test_environment_server_has_no_conversation_itself():
    async with serving(environment_on()) as client:
        with pytest.raises(InvalidTask, match="Call /v1/responses of its agent 'talker'"):
            await client.post("/v1/responses", json={"input": "hi"})


async def test_metrics_come_from_the_resources_server():
    rows = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]}
    async with serving(environment_on()) as client:
        assert (await client.post("/aggregate_metrics", json=rows)).json()["agent_metrics"]["mean/reward"] == 0.5
