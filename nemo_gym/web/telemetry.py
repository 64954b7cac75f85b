"""Metrics of a server's calls, in Prometheus's format for `GET /metrics`."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.memory import resident_bytes
from nemo_gym.web.blocking import CURE, Block, LoopWatch

logger = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0)
LAG_PERIOD_S = 0.25
OTHER_ROUTE = "other"


@dataclass(slots=True)
class _RouteCounts:
    by_status: Counter[int] = field(default_factory=Counter)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0


class Telemetry:
    def __init__(self, server: str) -> None:
        self.server = server
        self.in_flight = 0
        self.queued = 0
        self.queue_seconds = 0.0
        self.refused = 0
        self.abandoned = 0
        self.loop_lag_s = 0.0
        self.most_loop_lag_s = 0.0
        self.counters: Callable[[], Mapping[str, int]] = dict
        """Returns further counts of the server, by name. A server sets it as `app.state.counters`."""
        self._blocks: dict[str, Block] = {}
        """The handlers that blocked the event loop, by path: each with its total time and its place at first."""
        self._routes: defaultdict[str, _RouteCounts] = defaultdict(_RouteCounts)
        self._started_at = time.time()

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count an answered call. `route` is the declared path, so that the metrics have few distinct labels."""
        counts = self._routes[route]
        counts.by_status[status] += 1
        counts.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        counts.seconds += seconds

    async def watch_loop(self, folder: Path | None = None) -> None:
        """Measure the event loop's lag, and which handlers block it, for as long as the server runs.

        `folder` has the server's own code.
        """
        loop = asyncio.get_running_loop()
        with LoopWatch(self._note_block, folder):
            while True:
                due = loop.time() + LAG_PERIOD_S
                await asyncio.sleep(LAG_PERIOD_S)
                self.loop_lag_s = max(0.0, loop.time() - due)
                self.most_loop_lag_s = max(self.most_loop_lag_s, self.loop_lag_s)

    def _note_block(self, block: Block) -> None:
        """Add up the time in which a call's handler blocked the loop. Log the handler once."""
        if not block.path:
            return
        earlier = self._blocks.get(block.path)
        if earlier is None:
            logger.info("%s. %s", block.described(self.server), CURE)
        total = block if earlier is None else earlier._replace(seconds=earlier.seconds + block.seconds)
        # Replace the dict, because another thread may call this while the event loop iterates over it.
        self._blocks = {**self._blocks, block.path: total}

    def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        server = f'server="{self.server}"'
        usage = resource.getrusage(resource.RUSAGE_SELF)
        for name, kind, description, value in (
            ("requests_in_flight", "gauge", "Requests that are being handled.", self.in_flight),
            ("requests_queued", "gauge", "Requests that wait for a free slot.", self.queued),
            ("queue_seconds_total", "counter", "Seconds that requests have waited for a slot.", self.queue_seconds),
            ("requests_refused_total", "counter", "Requests rejected because the queue was full.", self.refused),
            ("requests_abandoned_total", "counter", "Requests whose caller had hung up.", self.abandoned),
            ("event_loop_lag_seconds", "gauge", "Latest lag of the event loop.", self.loop_lag_s),
            ("event_loop_lag_seconds_max", "gauge", "Largest lag of the event loop.", self.most_loop_lag_s),
            ("process_cpu_seconds_total", "counter", "CPU time of this process.", usage.ru_utime + usage.ru_stime),
            ("process_start_time_seconds", "gauge", "Start time of this process, since the epoch.", self._started_at),
            ("process_resident_memory_bytes", "gauge", "Resident memory of this process.", resident_bytes() or None),
        ):
            if value is None:
                # Leave out the resident memory on systems that do not report it.
                continue
            yield f"# HELP nemo_gym_{name} {description}"
            yield f"# TYPE nemo_gym_{name} {kind}"
            yield f"nemo_gym_{name}{{{server}}} {_number(value)}"
        for name, count in self.counters().items():
            yield f"# TYPE nemo_gym_{name}_total counter"
            yield f"nemo_gym_{name}_total{{{server}}} {count}"
        yield "# HELP nemo_gym_blocked_seconds_total Seconds in which a handler blocked the event loop."
        yield "# TYPE nemo_gym_blocked_seconds_total counter"
        for block in self._blocks.values():
            labels = f'{server},route="{_escaped(block.path)}",place="{_escaped(block.place)}"'
            yield f"nemo_gym_blocked_seconds_total{{{labels}}} {_number(block.seconds)}"
        yield "# HELP nemo_gym_requests_total Requests answered, by route and status."
        yield "# TYPE nemo_gym_requests_total counter"
        for route, counts in self._routes.items():
            for status, number in sorted(counts.by_status.items()):
                yield f'nemo_gym_requests_total{{{server},route="{_escaped(route)}",status="{status}"}} {number}'
        yield "# HELP nemo_gym_request_seconds Seconds from request to response."
        yield "# TYPE nemo_gym_request_seconds histogram"
        for route, counts in self._routes.items():
            labels = f'{server},route="{_escaped(route)}"'
            below = 0
            for bound, number in zip((*BUCKETS_S, "+Inf"), counts.buckets, strict=True):
                below += number
                yield f'nemo_gym_request_seconds_bucket{{{labels},le="{bound}"}} {below}'
            yield f"nemo_gym_request_seconds_sum{{{labels}}} {_number(counts.seconds)}"
            yield f"nemo_gym_request_seconds_count{{{labels}}} {below}"


def _number(value: float) -> str:
    # Use 15 significant digits. Plain `g` would round to six, freeze large counters, and shift times by over an hour.
    return f"{value:.15g}"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
