"""Calls of a rollout stay with one of several engines, unless it is overloaded, unreachable or restarted."""

import asyncio
from contextlib import ExitStack

import httpx
import pytest

from nemo_gym import EndpointError
from responses_api_models.vllm_model.routing import EngineLoad, Routing, load_of
from responses_api_models.vllm_model.tests.asking import served


class Engine:
    """An endpoint whose only call is that for its metrics. `metrics` is its text, or the error of the call."""

    def __init__(self, number, metrics=""):
        self.base_url = f"http://engine-{number}/v1"
        self.metrics = metrics

    async def create_metrics(self):
        if isinstance(self.metrics, Exception):
            raise self.metrics
        return self.metrics


def unreachable():
    return EndpointError("cannot connect")


def routing_of(*metrics, is_shared=False):
    engines = [Engine(number, each) for number, each in enumerate(metrics)]
    return Routing(engines, is_shared=is_shared), engines


async def read(routing):
    """Let the routing read the metrics of its engines now."""
    routing._read_at = float("-inf")
    with routing.engine_of("reader"):
        await asyncio.gather(*filter(None, [routing._reading]))


async def chosen(routing, rollout):
    with routing.engine_of(rollout) as engine:
        return engine


async def test_concurrent_rollouts_are_spread_evenly_and_stay():
    routing, engines = routing_of("", "", "", "")
    rollouts = [f"{task}-0" for task in range(32)]
    with ExitStack() as calls:
        homes = {each: calls.enter_context(routing.engine_of(each)) for each in rollouts}
    assert sorted(list(homes.values()).count(engine) for engine in engines) == [8, 8, 8, 8]
    for rollout in rollouts * 2:
        assert await chosen(routing, rollout) is homes[rollout]
    assert routing.counters() == {"calls_kept": 64, "calls_moved": 0}


async def test_rollout_leaves_an_overloaded_engine():
    routing, _ = routing_of("", "", is_shared=True)
    home = await chosen(routing, "0-0")
    others = [f"{task}-0" for task in range(1, 99) if await chosen(routing, f"{task}-0") is home]
    with ExitStack() as calls:
        # Rollouts that stay make their engine busier than the mean by a quarter at most.
        engines = [calls.enter_context(routing.engine_of(each)) for each in others[:8]]
        assert 0 < sum(engine is not home for engine in engines) < 4
    assert routing.counters()["calls_moved"] == sum(engine is not home for engine in engines)


async def test_unreachable_engine_is_avoided_until_it_answers():
    routing, engines = routing_of(unreachable(), "", is_shared=True)
    rollouts = [f"{task}-0" for task in range(16)]
    homes = {each: await chosen(routing, each) for each in rollouts}
    of_first = [rollout for rollout, home in homes.items() if home is engines[0]]
    with pytest.raises(EndpointError), routing.engine_of(of_first[0]):
        raise unreachable()
    assert {await chosen(routing, each) for each in rollouts} == {engines[1]}
    engines[0].metrics = EndpointError("no such route", status=404)
    await read(routing)
    assert {await chosen(routing, f"{task}-1") for task in range(16)} == set(engines)


async def test_restarted_engine_has_no_preference():
    metrics = "process_start_time_seconds 1.7e+09\nvllm:num_requests_waiting 9\n"
    routing, engines = routing_of(metrics, "process_start_time_seconds 1.7e+09\n")
    await read(routing)
    with routing.engine_of("other") as first, routing.engine_of("0-0") as home:
        assert {first, home} == set(engines)
    busy = await chosen(routing, "0-0" if home is engines[0] else "other")
    assert busy is engines[0]
    engines[0].metrics = metrics.replace("1.7", "1.8")
    await read(routing)
    # Among engines with equally many calls, the one without a queue is chosen.
    assert await chosen(routing, "0-0" if home is engines[0] else "other") is engines[1]
    assert routing.counters() == {"calls_kept": 2, "calls_moved": 0}


async def test_processes_of_a_server_choose_the_same_engine():
    one, _ = routing_of("", "", is_shared=True)
    other, _ = routing_of("", "", is_shared=True)
    found = [
        ((await chosen(one, each)).base_url, (await chosen(other, each)).base_url) for each in map(str, range(64))
    ]
    assert all(ours == theirs for ours, theirs in found)
    assert len(set(found)) == 2


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        ("", EngineLoad()),
        ('vllm:num_requests_waiting{engine="0",model_name="m"} 3.0\nvllm:num_requests_waiting{engine="1"} 1.0\n'
         'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n', EngineLoad(4, 0.5)),
        ('sglang:num_queue_reqs{model_name="m"} 2.0\nsglang:token_usage{model_name="m"} 0.1\n', EngineLoad(2, 0.1)),
        ("process_start_time_seconds 1.75e+09\n", EngineLoad(started_at=1.75e9)),
    ],
)  # fmt: skip
def test_load_is_read_from_the_metrics(metrics, load):
    assert load_of(metrics) == load


@pytest.mark.parametrize("settings", [{}, {"session_header": "X-My-Session"}, {"session_header": None}])
async def test_calls_carry_the_id_of_their_rollout(endpoint, another_endpoint, settings):
    addresses = [endpoint, another_endpoint]
    urls = [f"{address}/v1" for address in addresses]
    async with (
        served(base_url=urls, api_key="k", model="echo", **settings) as url,
        httpx.AsyncClient(verify=False) as client,
    ):
        for address in addresses:
            await client.delete(f"{address}/seen")
        for _ in range(3):
            await client.post(f"{url}/ng-rollout/7-1/v1/responses", json={"input": "Hello"})
        metrics = (await client.get(f"{url}/metrics")).text
        seen = [each for address in addresses for each in (await client.get(f"{address}/seen")).json()]
    calls = [each["headers"] for each in seen if each["path"].endswith("/chat/completions")]
    name = settings.get("session_header", "X-Session-ID")
    assert [call.get(name.lower()) if name else None for call in calls] == ["7-1" if name else None] * 3
    assert any("session" in header for header in calls[0]) is bool(name)
    assert 'nemo_gym_calls_kept_total{server="policy_model"} 2\n' in metrics
