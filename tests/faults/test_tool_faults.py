"""`tool_faults: tell_model` passes every reply of a tool's server to the model, including error statuses."""

from __future__ import annotations

import re

import pytest

from tests.faults.conftest import SLACK_S

pytestmark = pytest.mark.slow

AGENTS = {
    "failing": {"type": "responses_api_agents", "name": "agent"},
    "lenient": {"type": "responses_api_agents", "name": "lenient_agent"},
}
TIMEOUT_S = 15.0


@pytest.fixture(scope="module")
def collected(collect_rows, row_of):
    rows = [
        row_of(f"{name}-{agent}", calls, fault, notes=0, agent_ref=reference)
        for agent, reference in AGENTS.items()
        for name, calls, fault in (
            ("raises", [("act", {"how": "raise"})], ""),
            ("raises-a-timeout", [("act", {"how": "time out"})], ""),
            ("takes-too-long", [("act", {"how": "hang"})], ""),
            ("connection-lost-once", [("act", {"how": ""})], "to-resources /act reset-after 1"),
            ("connection-lost", [("act", {"how": ""})], "to-resources /act reset-after 99"),
        )
    ]
    return collect_rows(rows, rollout_timeout_s=TIMEOUT_S)


def causes(collected, case):
    return [line["_ng_failure_class"] for line in collected.failures.get(case, [])]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "raises",
            r"Error: faulty: /act raised app\.py:\d+: ZeroDivisionError: of nothing; its log has the traceback",
        ),
        (
            "raises-a-timeout",
            r"Error: faulty: /act raised app\.py:\d+: TimeoutError: the database did not answer; its log has ",
        ),
    ],
)
def test_tool_bug_is_returned_if_configured(collected, name, expected):
    result = collected.results[f"{name}-lenient"]
    (output,) = [item for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert re.match(expected, output["output"])
    assert result["reward"] == 1.0
    assert causes(collected, f"{name}-lenient") == []
    assert causes(collected, f"{name}-failing") == ["environment_failed"]


@pytest.mark.parametrize("agent", AGENTS)
def test_tool_that_outlasts_the_rollout_times_out(collected, agent):
    assert causes(collected, f"takes-too-long-{agent}") == ["timeout"]
    assert collected.ended_after_s[f"takes-too-long-{agent}"] < TIMEOUT_S + SLACK_S


@pytest.mark.parametrize("agent", AGENTS)
def test_lost_connection_retries_the_whole_rollout(collected, agent):
    assert causes(collected, f"connection-lost-once-{agent}") == ["lost"]
    assert collected.results[f"connection-lost-once-{agent}"]["reward"] == 1.0
    assert causes(collected, f"connection-lost-{agent}") == ["lost"] * 3
