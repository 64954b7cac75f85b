"""Each fault at each place between two tiers has the expected outcome in time and affects no other rollout."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

import httpx
import pytest

from nemo_gym.schemas.rollout import TIME_LEFT_HEADER
from tests.each_case import each_case
from tests.faults.conftest import SLACK_S

pytestmark = pytest.mark.slow

TIMEOUT_S = 15.0
SOUND = 25
TIERS_WITH_A_DEADLINE = ("collector", "agent", "model", "environment")
LOST = ("reset", "hang-up", "reset-after", "reset-midway", "half", "garbage")


class Case(NamedTuple):
    """A row and its expected outcome: a failure with this cause and tier, or a score if `cause` is None."""

    name: str
    fault: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("note", {}),)
    fields: dict[str, Any] = {}  # noqa: RUF012 - never modified
    cause: str | None = None
    tier: str | None = None
    failed_attempts: int = 0
    """The number of lines in the failures file, including the last attempt."""
    before: tuple[str, str] | None = None
    """The cause and tier of the retried attempts."""


def at_own_place(place: str, path: str, tier: str) -> list[Case]:
    """Return the faults for calls of one of our own servers."""
    where = f"{place} {path}"
    lost = [Case(f"{kind}-once", f"{where} {kind} 1", failed_attempts=1, before=("lost", tier)) for kind in LOST]
    others = [
        Case("reset-always", f"{where} reset 99", cause="lost", tier=tier, failed_attempts=3, before=("lost", tier)),
        Case("delay", f"{where} delay 99"),
        Case("drip", f"{where} drip 99"),
        Case("hang", f"{where} hang 99", cause="timeout", tier="collector", failed_attempts=1),
        Case("trickle", f"{where} trickle 99", cause="timeout", tier="collector", failed_attempts=1),
    ]
    return [case._replace(name=f"{place}{path}-{case.name}".replace("/", "_")) for case in (*lost, *others)]


def at_endpoint(kind: str, times: int = 99, **expected: Any) -> Case:
    return Case(f"endpoint-{kind}-{times}", f"to-endpoint /v1/responses {kind} {times}", **expected)


MODEL_FAILED = {"cause": "model_failed", "tier": "model", "failed_attempts": 1}
OVERLOADED = {"cause": "overloaded", "tier": "model", "failed_attempts": 3, "before": ("overloaded", "model")}
ENVIRONMENT_FAILED = {"cause": "environment_failed", "tier": "environment", "failed_attempts": 1}
TIMED_OUT = {"cause": "timeout", "tier": "collector", "failed_attempts": 1}
JUDGE_FAILED = {"cause": "judge_failed", "tier": "judge", "failed_attempts": 1, "fields": {"grade": "judge"}}

CASES = [
    *at_own_place("to-agent", "/run", "agent"),
    *at_own_place("to-policy", "/v1/responses", "model"),
    *at_own_place("to-resources", "/seed_session", "environment"),
    *at_own_place("to-resources", "/note", "environment"),
    *at_own_place("to-resources", "/verify", "environment"),
    # The model server itself retries calls of its endpoint, within one attempt.
    *(at_endpoint(kind, 1) for kind in ("status-429-0.2", "status-503-0.2", "status-503", "status-500", "status-502")),
    *(at_endpoint(kind) for kind in ("delay", "drip")),
    at_endpoint("status-429-0.1", **OVERLOADED),
    at_endpoint("status-503-0.1", **OVERLOADED),
    at_endpoint("status-429-0.1", 4, failed_attempts=1, before=("overloaded", "model")),
    at_endpoint("status-500", **MODEL_FAILED),
    at_endpoint("status-400", **MODEL_FAILED),
    at_endpoint("status-200", **MODEL_FAILED),
    *(at_endpoint(kind, **MODEL_FAILED) for kind in LOST),
    *(at_endpoint(kind, **TIMED_OUT) for kind in ("hang", "trickle", "status-429-20")),
    *(Case(f"nested-{depth}", fields={"nested": depth}, **MODEL_FAILED) for depth in (150, 900, 5000)),
    # A judge failure yields no reward and is not retried immediately.
    Case("judge", fields={"grade": "judge"}),
    *(Case(f"judge-{kind}", f"to-judge /v1/responses {kind} 9", **JUDGE_FAILED) for kind in (*LOST, "status-500")),
    Case("judge-hang", "to-judge /v1/responses hang 9", **JUDGE_FAILED),
    # The environment itself.
    *(Case(f"tool-{how}", calls=(("act", {"how": how}),), fields={"notes": 0}) for how in ("", "tell", "forbid")),
    Case("tool-wrong-arguments", calls=(("act", {"spam": 1}),), fields={"notes": 0}),
    Case("tool-raises", calls=(("act", {"how": "raise"}),), **ENVIRONMENT_FAILED),
    Case("tool-raises-a-timeout", calls=(("act", {"how": "time out"}),), **ENVIRONMENT_FAILED),
    Case("tool-hangs", calls=(("act", {"how": "hang"}),), **TIMED_OUT),
    *(Case(f"tool-blocks-{number}", calls=(("note", {}), ("block", {})), **TIMED_OUT) for number in range(3)),
    Case("seed-raises", fields={"seed": "raise"}, **ENVIRONMENT_FAILED),
    Case("seed-hangs", fields={"seed": "hang"}, **TIMED_OUT),
    Case("verify-raises", fields={"grade": "raise"}, **ENVIRONMENT_FAILED),
    Case("verify-hangs", fields={"grade": "hang"}, **TIMED_OUT),
    Case("verify-not-finite", fields={"grade": "nan"}, **ENVIRONMENT_FAILED),
]


@pytest.fixture(scope="module")
def collected(collect_rows, row_of):
    """All cases at once, and sound rollouts among them."""
    rows = [row_of(case.name, case.calls, case.fault, **case.fields) for case in CASES]
    sound = [row_of(f"sound-{number}", [("note", {})] * 3) for number in range(SOUND)]
    return collect_rows([*sound, *rows], rollout_timeout_s=TIMEOUT_S)


@each_case("case", CASES)
def test_each_fault_has_its_expected_outcome(collected, case):
    lines = collected.failures.get(case.name, [])
    failures = [(line["_ng_failure_class"], _tier_of(line)) for line in lines]
    last = [(case.cause, case.tier)] if case.cause else []
    assert failures == [case.before] * (case.failed_attempts - len(last)) + last, lines
    assert all(line.get("reward") is None or case.cause == "judge_failed" for line in lines)
    if case.cause is None:
        assert collected.results[case.name]["reward"] == 1.0
    else:
        assert case.name not in collected.results


def _tier_of(line: dict[str, Any]) -> str:
    """Return the tier of a failure. For timeouts it varies, because all tiers share a deadline: use the collector."""
    is_late = line["_ng_failure_class"] == "timeout"
    tier: str = line["_ng_failure_tier"]
    return "collector" if is_late and tier in TIERS_WITH_A_DEADLINE else tier


@each_case("case", CASES)
def test_no_rollout_exceeds_its_time_limit(collected, case):
    took_s = collected.ended_after_s[case.name]
    assert took_s < TIMEOUT_S + SLACK_S
    if case.cause == "timeout":
        assert took_s > 0.8 * TIMEOUT_S


def test_other_rollouts_of_the_run_are_scored(collected):
    for number in range(SOUND):
        name = f"sound-{number}"
        assert collected.results[name]["reward"] == 1.0
        assert name not in collected.failures


def test_planned_equals_scored_plus_failed(collected):
    summary, planned = collected.summary, len(CASES) + SOUND
    failing = {case.name for case in CASES if case.cause}
    assert summary.planned == summary.scored + summary.failed + summary.unresolved == planned
    assert (summary.failed, summary.unresolved) == (len(failing), 0)
    assert set(collected.results) | failing == {row["case"] for row in collected.rows}
    assert set(collected.failures) - set(collected.results) == failing
    attempts = sum(len(lines) for lines in collected.failures.values())
    assert attempts == summary.repeated + summary.failed


def test_no_request_stays_in_flight(collected, tiers):
    assert not any(tiers.at_work().values())


async def test_timeout_names_the_endpoints_behaviour(tiers, row_of):
    """The test calls the model server itself: in a run on a busy machine, the agent can be the first to time out."""
    words = {
        "hang": "(no answer yet)",
        "trickle": "(no answer yet)",
        "status-429-20": 'answered 429: {"error": {"message": "not now"}}; next try after a pause of 20.0 s',
    }
    url = f"http://127.0.0.1:{tiers.ports['policy_model']}/v1/responses"
    headers = {TIME_LEFT_HEADER: f"{TIMEOUT_S}"}
    async with httpx.AsyncClient(timeout=TIMEOUT_S + SLACK_S, verify=False) as client:
        rows = [row_of(f"named-{fault}", fault=f"to-endpoint /v1/responses {fault} 99") for fault in words]
        calls = [client.post(url, json=row["responses_create_params"], headers=headers) for row in rows]
        failures = [answer.json() for answer in await asyncio.gather(*calls)]
    for failure, behaviour in zip(failures, words.values(), strict=True):
        assert (failure["failure_class"], failure["server"]) == ("timeout", "policy_model")
        assert "waiting for POST http://127.0.0.1:" in failure["detail"]
        assert behaviour in failure["detail"]


def test_bug_is_logged_and_recorded_in_one_line(collected, tiers):
    log = tiers.log_of("faulty")
    assert 'raise ZeroDivisionError("of nothing")' in log
    (line,) = collected.failures["tool-raises"]
    expected = r"faulty: /act raised app\.py:\d+: ZeroDivisionError: of nothing; its log has the traceback"
    assert re.fullmatch(expected, line["_ng_failure_message"])
    assert line["_ng_failure_server"] == "faulty"
    kept = line["_ng_failure_conversation"]
    assert [item["type"] for item in kept["items"]] == ["function_call"]
