"""The time and the tool calls of rollouts reach the collector, from real servers and also for failures."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import pytest

from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row
from tests.each_case import each_case

pytestmark = pytest.mark.slow

TIMEOUT_S = 15.0
ALL = {"seed", "model", "tools", "verify"}
NOTE = ("note", {})


def act(how: str) -> tuple[str, dict[str, Any]]:
    return ("act", {"how": how})


class Case(NamedTuple):
    """A row, and the expected content of its record."""

    fields: dict[str, Any]
    cause: str | None
    phases: set[str]
    tools: dict[str, tuple[int, int]]


CASES = {
    "scored": Case({"calls": [NOTE, NOTE, act("")]}, None, ALL, {"note": (2, 0), "act": (1, 0)}),
    "no-tools": Case({"calls": []}, None, ALL - {"tools"}, {}),
    "refused-call": Case({"calls": [act("forbid"), act("")]}, None, ALL, {"act": (2, 1)}),
    "failed-call": Case(
        {"calls": [NOTE, act("raise")]}, "environment_failed", ALL - {"verify"}, {"note": (1, 0), "act": (1, 1)}
    ),
    "lost-call": Case({"fault": "to-resources /note reset-after 99"}, "lost", ALL - {"verify"}, {"note": (1, 1)}),
    "hanging-call": Case({"calls": [act("hang")]}, "timeout", ALL - {"verify"}, {"act": (1, 1)}),
    "failed-model": Case({"fault": "to-endpoint /v1/responses status-400 99"}, "model_failed", {"seed", "model"}, {}),
    "failed-seed": Case({"seed": "raise"}, "environment_failed", {"seed"}, {}),
    "failed-verify": Case({"grade": "raise"}, "environment_failed", ALL, {"note": (1, 0)}),
    "lost-agent": Case({"fault": "to-agent /run reset-after 99"}, "lost", set(), {}),
}


@pytest.fixture(scope="module")
def records(tiers, row_of) -> dict[str, Record]:
    """Run all cases at once; return their records."""

    def task(number: int, case: str, fields: dict[str, Any]) -> Row:
        ids = {"agent_ref": {"name": "agent"}, "_ng_task_index": number, "_ng_rollout_index": 0}
        return Row({**row_of(case, **fields), **ids})

    async def run() -> dict[str, Record]:
        client = tiers.client()
        runner = Runner(client, rollout_timeout_s=TIMEOUT_S)
        rows = [task(number, case, fields) for number, (case, (fields, *_)) in enumerate(CASES.items())]
        try:
            return dict(zip(CASES, await asyncio.gather(*map(runner.run, rows)), strict=True))
        finally:
            await client.aclose()

    return asyncio.run(run())


@each_case("case", CASES)
def test_record_has_time_of_phases_and_tool_calls(records, case):
    expected, record, timing = CASES[case], records[case], records[case].timing
    assert (record.cause, timing.phases.keys(), timing.tools) == (expected.cause, expected.phases, expected.tools)
    # The calls of this agent do not overlap. Each duration is rounded.
    assert (sum(timing.phases.values()) > 0) is bool(expected.phases)
    assert sum(timing.phases.values()) <= timing.seconds + 0.01
    assert 0 < timing.seconds <= time.time() - timing.began_at


def test_timing_is_not_written_into_the_result(records):
    assert not records["scored"].row.fields.keys() & {"timing", "phases", "seconds", "began_at"}
