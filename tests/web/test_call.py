"""Limits on calls: deadline, concurrency, body size and the run's token."""

import asyncio
import re
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
from pydantic import Field

from nemo_gym import (
    BaseVerifyRequest,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    Overloaded,
    RolloutTimedOut,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    tool,
)
from nemo_gym.calls.loads import load_of
from nemo_gym.context.deadline import deadline_in, grace_period, time_left_s
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER, RUN_ID_HEADER, TIME_LEFT_HEADER
from nemo_gym.servers.base import context_of
from nemo_gym.testing import make_server, on_a_port, serving
from nemo_gym.web.admission import Admission
from nemo_gym.web.limits import CallLimits
from nemo_gym.web.middleware import CallMiddleware
from nemo_gym.web.telemetry import Telemetry
from nemo_gym.web.threads import BlockingPool
from tests.each_case import each_case
from tests.waiting import async_until

pytestmark = pytest.mark.bare

ROW = {"responses_create_params": {"input": "hi"}}


class Slow(SimpleResourcesServer):
    """Waits as requested, and records the calls that began and that were cancelled."""

    begun: list[str] = Field(default_factory=list)
    cancelled: list[str] = Field(default_factory=list)
    may_end: Any = Field(default_factory=asyncio.Event)
    """Ends the calls that wait."""
    may_unblock: Any = Field(default_factory=threading.Event)

    @tool
    async def wait(self, name: str = "x", seconds: float = 30.0) -> str:
        """Wait, and return the rollout's time left."""
        self.begun.append(name)
        left_s = time_left_s()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.may_end.wait(), seconds)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return "unbounded" if left_s is None else f"{left_s:.1f}"

    @tool
    def block(self) -> str:
        """Block a thread."""
        self.begun.append("block")
        self.may_unblock.wait(100)
        return threading.current_thread().name

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


class Caller(SimpleResponsesAPIAgent):
    """Calls a tool for each rollout."""

    closed: list[str] = Field(default_factory=list)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = await self.server_client.post("slow", "/wait", json={"seconds": body["seconds"]})
            return {"text": (await reply.read()).decode(), "reward": 1.0}
        finally:
            with grace_period(5.0):
                await self.server_client.post("slow", "/close_session")
            self.closed.append("closed")


async def hung_up(calling: asyncio.Task[object]) -> None:
    """Close the connection of a call."""
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


@pytest.fixture
def slow():
    return make_server(Slow, name="slow")


async def test_call_ends_at_the_rollouts_deadline(slow):
    async with on_a_port(slow) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        began = time.monotonic()
        answer = await client.post("/wait", json={}, headers={TIME_LEFT_HEADER: "0.3"})
        assert time.monotonic() - began > 0.25
    assert (answer.status_code, answer.json()["failure_class"]) == (504, "timeout")
    assert answer.json()["detail"] == "the rollout's time was over while slow worked on /wait"
    assert slow.cancelled == ["x"]


@each_case("value", ["soon", "nan", "inf", ""])
async def test_invalid_time_left_is_ignored(slow, value):
    async with on_a_port(slow) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        answer = await client.post("/wait", json={"seconds": 0}, headers={TIME_LEFT_HEADER: value})
    assert answer.text == "unbounded"


async def test_time_left_is_passed_on_and_shrinks(slow):
    agent = make_server(Caller, name="caller", servers=[slow])
    async with serving(agent) as client:
        with deadline_in(1000.0):
            reply = await agent.server_client.post("slow", "/wait", json={"seconds": 0})
        assert 900.0 < float((await reply.read()).decode()) < 1000.0
        answer = await client.post("/run", json={**ROW, "seconds": 0}, headers={TIME_LEFT_HEADER: "500"})
        assert 400.0 < float(answer.json()["text"]) < 500.0


async def test_timeout_names_innermost_server_and_closes_the_session(slow, monkeypatch):
    # With the usual difference of 5 %, a delay of this process by 0.15 s would cover both timeouts.
    monkeypatch.setattr("nemo_gym.calls.caller.time_left_for_callee", lambda left_s: left_s - 2.0)
    agent = make_server(Caller, name="caller", servers=[slow])
    async with on_a_port(agent) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        answer = await client.post("/run", json={**ROW, "seconds": 30}, headers={TIME_LEFT_HEADER: "3"})
    assert answer.status_code == 200
    assert "slow worked on /wait" in answer.json()["text"]
    assert agent.closed == ["closed"]


async def test_no_call_is_sent_after_the_deadline(slow):
    agent = make_server(Caller, name="caller", servers=[slow])
    async with serving(agent):
        with deadline_in(-1.0), pytest.raises(RolloutTimedOut, match="while calling /wait of slow"):
            await agent.server_client.post("slow", "/wait", json={})
    assert slow.begun == []


async def test_call_is_cancelled_when_its_caller_hangs_up(slow):
    async with on_a_port(slow) as url:
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
            calling = asyncio.create_task(client.post("/wait", json={}))
            await async_until(lambda: slow.begun == ["x"])
            await hung_up(calling)
        await async_until(lambda: slow.cancelled == ["x"] and context_of(slow).telemetry.in_flight == 0)
        assert context_of(slow).telemetry.abandoned == 1


async def test_hanging_up_cancels_the_whole_call_chain(slow):
    agent = make_server(Caller, name="caller", servers=[slow])
    async with on_a_port(agent) as url:
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
            calling = asyncio.create_task(client.post("/run", json={**ROW, "seconds": 30}))
            await async_until(lambda: slow.begun == ["x"])
            await hung_up(calling)
        await async_until(lambda: agent.closed == ["closed"] and slow.cancelled == ["x"])


async def test_patient_caller_is_answered(slow):
    async with on_a_port(slow) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        answer = await client.post("/wait", json={"seconds": 1.2}, timeout=100.0)
    assert (answer.status_code, slow.cancelled) == (200, [])


def limited(**settings):
    return make_server(Slow, name="slow", **settings)


async def test_excess_calls_queue_and_further_ones_are_rejected():
    server = limited(max_requests_in_flight=2, max_requests_queued=3)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=100, verify=False) as client:
        began, telemetry = time.monotonic(), context_of(server).telemetry
        calls = [
            asyncio.create_task(client.post("/wait", json={"name": str(number), "seconds": 100}))
            for number in range(7)
        ]
        await async_until(lambda: (telemetry.queued, telemetry.refused) == (3, 2))
        await asyncio.sleep(0.4)
        server.may_end.set()
        answers = await asyncio.gather(*calls)
        took_s = time.monotonic() - began
        counts = (await client.get("/metrics")).text
    rejected = [answer for answer in answers if answer.status_code == 503]
    assert len(rejected) == 2
    assert {answer.headers["retry-after"] for answer in rejected} == {"1"}
    assert all(NOT_BEGUN_HEADER in answer.headers for answer in rejected)
    assert (rejected[0].json()["failure_class"], rejected[0].json()["tier"]) == ("overloaded", "environment")
    assert len(server.begun) == 5
    assert 'nemo_gym_requests_refused_total{server="slow"} 2' in counts
    assert telemetry.in_flight == telemetry.queued == 0
    assert 1.0 < telemetry.queue_seconds < 3 * took_s


async def test_own_client_retries_until_a_slot_is_free():
    server = limited(max_requests_in_flight=1, max_requests_queued=0)
    agent = make_server(Caller, name="caller", servers=[server])
    async with serving(agent):
        calls = [agent.server_client.post("slow", "/wait", json={"seconds": 0.1}) for _ in range(4)]
        answers = await asyncio.gather(*calls)
    assert [answer.status for answer in answers] == [200] * 4
    assert context_of(server).telemetry.refused > 0


async def test_call_that_times_out_in_queue_never_begins():
    server = limited(max_requests_in_flight=1)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=100, verify=False) as client:
        first = asyncio.create_task(client.post("/wait", json={"name": "first", "seconds": 100}))
        await async_until(lambda: server.begun == ["first"])
        second = await client.post("/wait", json={"name": "second"}, headers={TIME_LEFT_HEADER: "0.2"})
        server.may_end.set()
        assert (await first).status_code == 200
        third = await client.post("/wait", json={"name": "third", "seconds": 0})
    assert (second.status_code, second.json()["detail"]) == (
        504, "the rollout's time was over while /wait waited for a free slot at slow",
    )  # fmt: skip
    assert third.status_code == 200
    assert server.begun == ["first", "third"]


async def test_full_server_still_answers_metrics():
    server = limited(max_requests_in_flight=1, max_requests_queued=0)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=100, verify=False) as client:
        first = asyncio.create_task(client.post("/wait", json={"seconds": 0.5}))
        await async_until(lambda: server.begun == ["x"])
        assert (await client.get("/metrics")).status_code == 200
        await first


@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunked", "with its length"])
async def test_body_that_is_too_long_is_rejected(is_chunked):
    async def parts():
        for _ in range(40):
            yield b'{"name": "' + b"x" * 100 + b'"}'

    server = limited(max_request_bytes=1000)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        answer = await client.post("/wait", content=parts() if is_chunked else b"x" * 1001)
    assert answer.status_code == 413
    assert "1000 bytes (max_request_bytes)" in answer.text


async def test_metrics_are_counted_by_route_and_status(slow):
    async with on_a_port(slow) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=100) as client:
        for _ in range(3):
            await client.post("/wait", json={"seconds": 0})
        await client.post("/wait", json={"seconds": "long"})
        await client.post("/nowhere/at/all")
        text = (await client.get("/metrics")).text
    assert 'nemo_gym_requests_total{server="slow",route="/wait",status="200"} 3' in text
    assert 'nemo_gym_requests_total{server="slow",route="/wait",status="422"} 1' in text
    assert 'nemo_gym_requests_total{server="slow",route="other",status="404"} 1' in text
    assert re.search(r'request_seconds_bucket\{server="slow",route="/wait",le="\+Inf"\} 4\n', text)
    assert re.search(r"^nemo_gym_event_loop_lag_seconds\{.*\} [\d.e-]+$", text, re.MULTILINE)


@each_case(
    ("path", "headers", "status"),
    [
        ("/wait", {"x-nemo-gym-run-token": "right"}, 200),
        ("/wait", {"x-nemo-gym-run-token": "wrong"}, 401),
        ("/wait", {}, 401),
        ("/metrics", {}, 401),
        ("/livez", {}, 404),
    ],
)
async def test_calls_without_the_run_token_are_rejected(slow, path, headers, status):
    app = slow.setup_webserver()
    layer = CallMiddleware(
        app, admission=Admission(server="slow", telemetry=Telemetry("slow"), limits=CallLimits(), run_token="right")
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=layer), base_url="http://slow") as client:
        answer = await client.request(
            "GET" if path == "/livez" else "POST", path, json={"seconds": 0}, headers=headers
        )
    assert answer.status_code == status


async def test_plain_functions_run_concurrently_without_blocking_others():
    server = limited(blocking_threads=2)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=100, verify=False) as client:
        blocked = [asyncio.create_task(client.post("/block", json={})) for _ in range(4)]
        await async_until(lambda: server.begun == ["block"] * 2)
        await asyncio.sleep(0.1)
        quick = await client.post("/wait", json={"name": "quick", "seconds": 0})
        assert (quick.status_code, any(task.done() for task in blocked)) == (200, False)
        # There are two threads, so the other calls wait.
        assert server.begun == ["block", "block", "quick"]
        server.may_unblock.set()
        answers = await asyncio.gather(*blocked)
    assert {answer.status_code for answer in answers} == {200}


async def test_abandoned_function_frees_its_slot():
    pool = BlockingPool(threads=1)
    begun, released = threading.Event(), threading.Event()
    stuck = asyncio.create_task(pool.run(lambda: begun.set() or released.wait()))
    await async_until(begun.is_set)
    await hung_up(stuck)
    assert await asyncio.wait_for(pool.run(lambda: "room"), 100.0) == "room"
    assert pool.stuck == 1
    released.set()
    await async_until(lambda: pool.stuck == 0)


async def test_pool_full_of_stuck_functions_is_overloaded():
    pool = BlockingPool(threads=1)
    pool.stuck = 480
    with pytest.raises(Overloaded, match="480 calls of blocking handlers are still running"):
        await pool.run(lambda: None)


def test_large_counts_and_times_keep_their_precision():
    telemetry = Telemetry("slow")
    telemetry.refused = 1_234_567
    text = telemetry.text()
    assert 'nemo_gym_requests_refused_total{server="slow"} 1234567\n' in text
    (started_at,) = re.findall(r"process_start_time_seconds{.*} (.*)", text)
    assert abs(float(started_at) - time.time()) < 10


async def test_load_can_be_parsed_from_metrics():
    server = limited(max_requests_in_flight=1)
    async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, timeout=100, verify=False) as client:
        calls = [asyncio.create_task(client.post("/wait", json={"seconds": 100})) for _ in range(3)]
        await async_until(lambda: context_of(server).telemetry.queued == 2)
        load = load_of((await client.get("/metrics")).text)
        server.may_end.set()
        await asyncio.gather(*calls)
    assert (load.in_flight, load.queued) == (1, 2)
    assert load_of("# metrics of another server\nup 1\n") is None


@pytest.mark.parametrize(("run_id", "status"), [("mine", 200), ("another", 503), (None, 200)])
async def test_call_for_another_run_is_rejected(slow, run_id, status):
    app = slow.setup_webserver()
    slow.setup_call_layer(app, run_id="mine")
    headers = {RUN_ID_HEADER: run_id} if run_id else {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://slow") as client:
        answer = await client.post("/wait", json={"seconds": 0}, headers=headers)
    assert answer.status_code == status
    if status == 503:
        assert (answer.json()["failure_class"], answer.json()["tier"], slow.begun) == ("lost", "environment", [])
        assert answer.json()["detail"] == (
            "slow belongs to another run; the run that this call is meant for has ended"
        )
