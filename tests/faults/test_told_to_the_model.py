"""`tool_faults: tell_model`: what a tool's server answers is told to the model, whatever its status."""

from __future__ import annotations

import pytest

AGENTS = {
    "failing": {"type": "responses_api_agents", "name": "agent"},
    "telling": {"type": "responses_api_agents", "name": "telling_agent"},
}
TIMEOUT_S = 4.0


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
    ("name", "told"),
    [
        ("raises", "Error: faulty: /act raised ZeroDivisionError: of nothing; its log has the traceback"),
        ("raises-a-timeout", "Error: faulty: /act raised TimeoutError: the database did not answer; its log has "),
    ],
)
def test_a_tools_bug_is_its_answer_where_that_is_asked_for(collected, name, told):
    result = collected.results[f"{name}-telling"]
    (output,) = [item for item in result["response"]["output"] if item["type"] == "function_call_output"]
    assert output["output"].startswith(told)
    assert result["reward"] == 1.0
    assert causes(collected, f"{name}-telling") == []
    assert causes(collected, f"{name}-failing") == ["environment_failed"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_that_outlasts_the_rollout_has_nobody_left_to_tell(collected, agent):
    assert causes(collected, f"takes-too-long-{agent}") == ["timeout"]
    assert collected.ended_after_s[f"takes-too-long-{agent}"] < TIMEOUT_S + 3.0


@pytest.mark.parametrize("agent", AGENTS)
def test_a_lost_connection_begins_the_rollout_anew_since_nobody_knows_what_the_tool_did(collected, agent):
    assert causes(collected, f"connection-lost-once-{agent}") == ["lost"]
    assert collected.results[f"connection-lost-once-{agent}"]["reward"] == 1.0
    assert causes(collected, f"connection-lost-{agent}") == ["lost"] * 3
