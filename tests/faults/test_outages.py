"""Refused connections are retried until the rollout's timeout or the retry limit."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from nemo_gym.schemas.rollout import TIME_LEFT_HEADER
from tests.faults.conftest import SLACK_S, metric

pytestmark = pytest.mark.slow

UNTIL_CALLED = -1.0
"""Instead of a time: the model server tries to connect three times within a second or two, so there is no time for a
pause."""


@contextmanager
def refusing(tiers, place, for_s=None):
    """Refuse connections for this time, or until the block ends."""
    is_over = threading.Event()

    def accept_again():
        if for_s == UNTIL_CALLED:
            while not is_over.is_set() and not metric(tiers.ports["policy_model"], "requests_in_flight"):
                time.sleep(0.01)
        else:
            is_over.wait(for_s)
        tiers.command("accept", place)

    tiers.command("refuse", place)
    again = threading.Thread(target=accept_again)
    again.start()
    yield
    is_over.set()
    again.join()


@pytest.mark.parametrize(
    ("place", "for_s"),
    [
        ("to-agent", 1.0),
        pytest.param("to-policy", 1.0),
        pytest.param("to-resources", 1.0),
        pytest.param("to-judge", 1.0),
        ("to-endpoint", UNTIL_CALLED),
    ],
)
def test_brief_connection_refusal_fails_no_rollout(tiers, collect_rows, row_of, place, for_s):
    rows = [row_of(f"{place}-{number}", grade="judge") for number in range(5)]
    began_at = time.monotonic()
    with refusing(tiers, place, for_s):
        collected = collect_rows(rows, rollout_timeout_s=60.0)
    assert (collected.summary.scored, collected.failures) == (5, {})
    assert time.monotonic() - began_at > for_s


@pytest.mark.parametrize(
    ("place", "cause", "tier", "pattern"),
    [
        ("to-agent", "timeout", "collector", "rollout_timeout_s=2"),
        # On a busy machine, the collector can be the first to time out.
        ("to-policy", "timeout", "collector", "of policy_model .*refused|rollout_timeout_s=4"),
        ("to-resources", "timeout", "collector", "of faulty .*refused|rollout_timeout_s=4"),
        pytest.param("to-judge", "judge_failed", "judge", "Connection refused"),
        ("to-endpoint", "model_failed", "model", r"could not connect.*\(tried 3 times\)"),
    ],
)
def test_missing_server_fails_its_rollouts_with_the_reason(tiers, collect_rows, row_of, place, cause, tier, pattern):
    # A judge's call and a model's call end by themselves, long before these timeouts.
    limit_s = {"to-agent": 2.0, "to-judge": 60.0, "to-endpoint": 60.0}.get(place, 4.0)
    with refusing(tiers, place):
        collected = collect_rows([row_of(f"{place}-gone", grade="judge")], rollout_timeout_s=limit_s)
    (line,) = collected.failures[f"{place}-gone"]
    assert (line["_ng_failure_class"], line["_ng_failure_tier"]) == (cause, tier)
    assert re.search(pattern, line["_ng_failure_message"])
    assert collected.ended_after_s[f"{place}-gone"] < limit_s + SLACK_S


@pytest.mark.parametrize(
    ("place", "pattern"),
    [
        ("to-policy", r"(calling|waiting for) /v1/responses of policy_model \(.*refused"),
        ("to-resources", r"(calling|waiting for) /seed_session of faulty \(.*refused"),
    ],
)
def test_timeout_of_an_agent_names_the_missing_server(tiers, row_of, place, pattern):
    url, left_s = f"http://127.0.0.1:{tiers.ports['agent']}/run", 3.0
    headers = {TIME_LEFT_HEADER: f"{left_s}"}
    with refusing(tiers, place):
        row = row_of(f"{place}-named")
        answer = httpx.post(url, json=row, headers=headers, timeout=left_s + SLACK_S, verify=False).json()
    assert answer["failure_class"] == "timeout"
    assert re.search(pattern, answer["detail"])
