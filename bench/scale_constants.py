"""The figures behind `bench scale`: measured, set by the code, or assumed, each with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from nemo_gym.calls.directory import DISTRUST_S, REFRESH_S, TIMEOUTS
from nemo_gym.calls.joining import HEARTBEAT_S, LOST_AFTER_S
from nemo_gym.web.limits import CallLimits

Kind = Literal["measured", "set", "assumed"]
ROLLOUTS = "bench/RESULTS.md, a rollout with one tool call, 64 in flight"
STEPS = "bench/RESULTS.md, long rollouts: (30 steps − 1 step) / 29"
TOKENS = "bench/RESULTS.md, token ids that no server parses: `tokens`, 1 MB, now"
MEMORY = "bench/RESULTS.md, how many rollouts can be in flight: separate, 4,096"
HEAD = "bench cluster, 1 to 1,000 parts of three servers"

MAY_BE_ZERO = ("_ms", "_us", "_kb", "_bytes", "_calls", "_sigma", "_files", "_per_h", "_pause_s", "crowding", "queued")
"""Ends of the names of figures that nothing is divided by."""


def _figure(value: float, unit: str, source: str, kind: Kind) -> Any:
    return field(default=value, metadata={"unit": unit, "source": source, "kind": kind})


def measured(value: float, unit: str, source: str) -> Any:
    """Return a field for a figure that a program of `bench/` has measured."""
    return _figure(value, unit, source, "measured")


def set_by(value: float, unit: str, source: str) -> Any:
    """Return a field for a limit or a pace that the code sets."""
    return _figure(value, unit, source, "set")


def assumed(value: float, unit: str, source: str) -> Any:
    """Return a field for a property of the cluster, the model or the tasks that was not measured."""
    return _figure(value, unit, source, "assumed")


@dataclass(frozen=True)
class Constants:
    """All figures of the model. `bench scale --constants` prints them, and `--set NAME=VALUE` changes one."""

    # CPU of a rollout
    agent_ms: float = measured(0.42, "ms per rollout", ROLLOUTS)
    resources_ms: float = measured(0.29, "ms per rollout", ROLLOUTS)
    model_ms: float = measured(0.25, "ms per rollout", ROLLOUTS)
    collector_ms: float = measured(0.13, "ms per rollout", ROLLOUTS)
    agent_step_ms: float = measured(0.110, "ms per further tool call", STEPS)
    resources_step_ms: float = measured(0.058, "ms per further tool call", STEPS)
    model_step_ms: float = measured(0.090, "ms per further tool call", STEPS)
    collector_step_ms: float = measured(0.007, "ms per further tool call", STEPS)
    agent_mb_ms: float = measured(4.1, "ms per MB of result", TOKENS)
    resources_mb_ms: float = measured(2.7, "ms per MB of result", TOKENS)
    model_mb_ms: float = measured(2.4, "ms per MB of result", TOKENS)
    collector_mb_ms: float = measured(4.2, "ms per MB of result", TOKENS)
    crowding: float = measured(
        0.03, "more CPU per doubling above 64 in flight", "the same table, 64 to 4,096 in flight"
    )
    mock_endpoint_ms: float = measured(0.05, "ms per rollout", "bench rollouts, column endpoint: 0.04 to 0.10")
    choose_us: float = measured(0.05, "µs per call and replica", "a choice among 1,000, kept for the rollout")

    # The head server, on one core
    heartbeat_us: float = measured(185, "µs", HEAD)
    heartbeat_part_us: float = measured(0.025, "µs per part", HEAD)
    lookup_us: float = measured(165, "µs, if the list is unchanged", HEAD)
    lookup_part_us: float = measured(0.03, "µs per part", HEAD)
    lookup_part_bytes: float = measured(0, "bytes per part, if the list is unchanged", HEAD)

    # Memory, files, disk
    collector_kb: float = measured(15.1, "KB per rollout in flight", MEMORY)
    node_kb: float = measured(60.1, "KB per rollout in flight", MEMORY)
    idle_mb: float = measured(161, "MB for three servers and launcher", "bench/RESULTS.md, startup")
    agent_files: float = measured(3, "files per rollout in flight", MEMORY)
    disk_mb_s: float = measured(450, "MB/s", "bench/RESULTS.md: a row of 1 MB with its fsync takes 2.2 ms")

    # Limits and paces of the code
    heartbeat_s: float = set_by(HEARTBEAT_S, "s between reports of a part", "nemo_gym/calls/joining.py")
    lost_after_s: float = set_by(LOST_AFTER_S, "s of silence", "nemo_gym/calls/joining.py")
    refresh_s: float = set_by(REFRESH_S, "s between look-ups of a caller", "nemo_gym/calls/directory.py")
    distrust_s: float = set_by(DISTRUST_S, "s between look-ups for a lost address", "nemo_gym/calls/directory.py")
    lookup_timeout_s: float = set_by(TIMEOUTS.total_s or 5.0, "s", "nemo_gym/calls/directory.py")
    slots: int = set_by(CallLimits.in_flight, "calls of one process at once", "max_requests_in_flight")
    queued: int = set_by(CallLimits.queued, "waiting calls of one process", "max_requests_queued")
    full_patience_s: float = set_by(120, "s of trying while a server is full", "docs/servers/failures.md")
    rollout_timeout_s: float = set_by(1800, "s", "rollout_timeout_s")
    max_attempts: int = set_by(3, "attempts", "max_attempts")
    retry_pause_s: float = set_by(1, "s", "retry_pause_s")

    # The cluster, the model and the tasks
    tool_calls: int = assumed(3, "per rollout", "a short agentic task")
    answer_tokens: float = assumed(750, "output tokens of a model call, mean", "15 s a call, a minute a rollout")
    answer_sigma: float = assumed(0.9, "spread of the lognormal", "the 99th percentile is 8 times the median")
    tokens_per_s: float = assumed(50, "output tokens/s of one sequence", "an engine with a model of medium size")
    engine_tokens_per_s: float = assumed(10_000, "output tokens/s of a node's engine", "eight GPUs, large batches")
    environment_ms: float = assumed(5, "ms of CPU per rollout", "the environment's own tools and verifier")
    token_bytes: float = assumed(17, "bytes per output token", "an id and a log-probability in the result")
    row_kb: float = assumed(4, "KB", "the task and the texts of its answers")
    cores: int = assumed(16, "cores per node", "left by the engine")
    node_gb: float = assumed(64, "GB of memory per machine", "left by the engine")
    link_gbit_s: float = assumed(10, "Gbit/s per machine", "a usual network card")
    open_files: int = assumed(65_535, "files per process (ulimit -n)", "docs/troubleshooting/descriptors.md")
    node_failures_per_h: float = assumed(
        1.6e-4, "failures per node-hour", "419 in 54 days on 2,048 nodes (The Llama 3 Herd of Models, 2024)"
    )
    back_after_s: float = assumed(300, "s until a failed node is back", "reboot and rejoin")

    def with_values(self, words: list[str]) -> Constants:
        """Return these figures with some replaced, given as NAME=VALUE. Raise `ValueError` for an invalid one."""
        known = {each.name: each for each in fields(self)}
        changed: dict[str, Any] = {}
        for word in words:
            name, _, text = word.partition("=")
            if name not in known:
                raise ValueError(f"--set {word}: '{name}' is not a constant. --constants lists them")
            try:
                value = float(text)
            except ValueError:
                raise ValueError(f"--set {word}: '{text}' is not a number. Write NAME=VALUE") from None
            may_be_zero = name.endswith(MAY_BE_ZERO)
            if not 0 <= value < float("inf") or not (value or may_be_zero):
                allowed = ", 0 or more" if may_be_zero else " above 0"
                raise ValueError(f"--set {word}: {name} must be a finite number{allowed}")
            if isinstance(getattr(self, name), int) and value != int(value):
                raise ValueError(f"--set {word}: {name} must be a whole number")
            changed[name] = int(value) if isinstance(getattr(self, name), int) else value
        return replace(self, **changed)

    def lines(self) -> list[str]:
        """Return one line per figure: its name, value, unit, kind and source."""
        return [
            f"{each.name:<20} {getattr(self, each.name):>10,g} {each.metadata['unit']:<42} "
            f"{each.metadata['kind']:<9} {each.metadata['source']}".rstrip()
            for each in fields(self)
        ]

    @property
    def result_mb(self) -> float:
        """The mean size of a result."""
        return (self.row_kb * 1e3 + (self.tool_calls + 1) * self.answer_tokens * self.token_bytes) / 1e6

    @property
    def answer_mu(self) -> float:
        """The mean of the logarithm of an answer's tokens."""
        return math.log(self.answer_tokens) - self.answer_sigma**2 / 2

    def crowded(self, in_flight: float) -> float:
        """Return the factor by which a process needs more CPU with many rollouts in flight."""
        doublings = max(0, int(max(1.0, in_flight / 64)).bit_length() - 1)
        return 1 + self.crowding * doublings
