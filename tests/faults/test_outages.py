"""Refused connections are retried until the rollout's timeout or the retry limit."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager

import pytest

from tests.faults.conftest import SLACK_S


@contextmanager
def refusing(tiers, place, for_s):
    """Refuse connections for this time, or until the block ends."""
    is_over = threading.Event()

    def accept_again():
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
        ("to-endpoint", 0.4),
    ],
)
def test_brief_connection_refusal_fails_no_rollout(tiers, collect_rows, row_of, place, for_s):
    rows = [row_of(f"{place}-{number}", grade="judge") for number in range(5)]
    with refusing(tiers, place, for_s):
        collected = collect_rows(rows, rollout_timeout_s=60.0)
    assert (collected.summary.scored, collected.failures) == (5, {})
    assert collected.took_s > 0.9 * for_s


@pytest.mark.parametrize(
    ("place", "cause", "tier", "pattern"),
    [
        ("to-agent", "timeout", "collector", "rollout_timeout_s=2"),
        pytest.param(
            "to-policy", "timeout", "collector", r"(calling|waiting for) /v1/responses of policy_model \(.*refused"
        ),
        pytest.param(
            "to-resources", "timeout", "collector", r"(calling|waiting for) /seed_session of faulty \(.*refused"
        ),
        pytest.param("to-judge", "judge_failed", "judge", "Connection refused"),
        ("to-endpoint", "model_failed", "model", r"could not connect.*\(tried 3 times\)"),
    ],
)
def test_missing_server_fails_its_rollouts_with_the_reason(tiers, collect_rows, row_of, place, cause, tier, pattern):
    # An agent answers 5 % of the time before the deadline, so that its own message arrives in time.
    limit_s = {"to-agent": 2.0, "to-endpoint": 20.0}.get(place, 10.0)
    with refusing(tiers, place, limit_s + 0.5):
        collected = collect_rows([row_of(f"{place}-gone", grade="judge")], rollout_timeout_s=limit_s)
    (line,) = collected.failures[f"{place}-gone"]
    assert (line["_ng_failure_class"], line["_ng_failure_tier"]) == (cause, tier)
    assert re.search(pattern, line["_ng_failure_message"])
    assert collected.ended_after_s[f"{place}-gone"] < limit_s + SLACK_S
