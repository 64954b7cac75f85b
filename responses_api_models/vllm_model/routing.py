"""Choose the engine of each call: the one with the rollout's earlier turns in its cache, unless it is overloaded."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from nemo_gym import EndpointError, NeMoGymAsyncOpenAI

SLACK = 1.25
"""The number of calls at an engine, as a multiple of the mean, from which on the engine counts as overloaded."""
MOST_HOMES = 1 << 16
"""The number of rollouts whose engine is remembered. The one that has not called for the longest time goes first."""
READ_EVERY_S = 1.0
READ_TIMEOUT_S = 2.0
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
_CACHE_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
_SAMPLE = re.compile(r"^([a-z:_]+)(?:\{[^}]*\})? ([-+.e\d]+)$", re.MULTILINE)


class EngineLoad(NamedTuple):
    """What an engine's `/metrics` says about its load; zeros if the engine does not serve them."""

    waiting: float = 0.0
    """The number of requests that wait for a place in the batch."""
    cache_usage: float = 0.0
    """The used share of the cache of keys and values, between 0 and 1."""
    started_at: float | None = None
    """The start of the engine's process, in seconds since the epoch."""


def load_of(metrics: str) -> EngineLoad:
    """Return the load from the text of an engine's metrics. The engine may consist of several replicas."""
    found: dict[str, list[float]] = {}
    for name, value in _SAMPLE.findall(metrics):
        found.setdefault(name, []).append(float(value))
    usages = [usage for name in _CACHE_USAGE for usage in found.get(name, ())]
    started_at = found.get("process_start_time_seconds")
    return EngineLoad(
        sum(number for name in _WAITING for number in found.get(name, ())),
        max(usages, default=0.0),
        max(started_at) if started_at else None,
    )


class Routing:
    """The engines of a model server, with the calls in flight and the engine of each rollout."""

    def __init__(self, endpoints: Sequence[NeMoGymAsyncOpenAI], *, is_shared: bool) -> None:
        """`is_shared` says that other processes of the server call the same engines for the same rollouts."""
        self._endpoints = endpoints
        self._is_shared = is_shared
        self._in_flight = [0] * len(endpoints)
        self._loads = [EngineLoad()] * len(endpoints)
        self._silent: set[int] = set()
        """The engines that could not be reached and have not answered since."""
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None
        self._read_at = -math.inf
        self._kept = self._moved = 0

    @contextmanager
    def engine_of(self, rollout: str) -> Iterator[NeMoGymAsyncOpenAI]:
        """Choose an engine for one call of a rollout, and count the call as in flight until the block ends."""
        if len(self._endpoints) == 1:
            yield self._endpoints[0]
            return
        self._read_soon()
        engine = self._choose(rollout)
        self._in_flight[engine] += 1
        try:
            yield self._endpoints[engine]
        except EndpointError as error:
            if error.status is None:
                self._silent.add(engine)
            raise
        finally:
            self._in_flight[engine] -= 1

    def counters(self) -> Mapping[str, int]:
        """Return how many calls went to the engine of their rollout's earlier calls, and how many to another one."""
        if len(self._endpoints) == 1:
            return {}
        return {"calls_kept": self._kept, "calls_moved": self._moved}

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _choose(self, rollout: str) -> int:
        count = len(self._endpoints)
        home = self._homes.pop(rollout, None)
        first = int.from_bytes(sha256(rollout.encode()).digest()) % count
        # Another process of this server has to find the same engine for a rollout that it does not know yet.
        preferred = first if home is None and self._is_shared else home
        if preferred is not None and not self._is_overloaded(preferred):
            engine = preferred
        else:
            engine = min(range(count), key=lambda each: (self._burden_of(each), (each - first) % count))
        if home is not None:
            self._kept += engine == home
            self._moved += engine != home
        self._homes[rollout] = engine
        while len(self._homes) > MOST_HOMES:
            self._homes.popitem(last=False)
        return engine

    def _is_overloaded(self, engine: int) -> bool:
        if engine in self._silent:
            return True
        fair = (sum(self._in_flight) + 1) / len(self._endpoints)
        return self._in_flight[engine] + 1 > math.ceil(SLACK * fair)

    def _burden_of(self, engine: int) -> tuple[object, ...]:
        load = self._loads[engine]
        return engine in self._silent, self._in_flight[engine], load.waiting, load.cache_usage

    def _read_soon(self) -> None:
        if self._reading is None and time.monotonic() - self._read_at > READ_EVERY_S:
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            await asyncio.gather(*map(self._read_one, range(len(self._endpoints))))
        finally:
            self._read_at, self._reading = time.monotonic(), None

    async def _read_one(self, engine: int) -> None:
        if not self._endpoints[engine].base_url:
            # The address of an engine that a server starts itself is unknown until its first call.
            return
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                load = load_of(await self._endpoints[engine].create_metrics())
        except (EndpointError, TimeoutError) as error:
            # An engine that answers with an error status serves no metrics, but can be reached.
            if isinstance(error, EndpointError) and error.status is not None:
                self._silent.discard(engine)
            return
        self._silent.discard(engine)
        before, self._loads[engine] = self._loads[engine], load
        if before.started_at is not None and load.started_at != before.started_at:
            # The cache of a restarted engine is empty.
            for rollout in [each for each, home in self._homes.items() if home == engine]:
                del self._homes[rollout]
