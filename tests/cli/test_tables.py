"""Tests of the tables at the end of a run."""

import io

from rich.console import Console

from nemo_gym.cli import tables
from nemo_gym.cli.rollouts import summary_line
from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.schemas.row import Row


def summary_of(*records: Record, planned: int | None = None) -> Summary:
    summary = Summary(planned=len(records) if planned is None else planned)
    for record in records:
        summary.count(record)
    summary.close()
    return summary


def failure(cause: str, message: str) -> Record:
    return Record(Outcome.FAILED, Row({"_ng_failure_message": message}), cause=cause)


def test_summary_accounts_for_all_planned_rollouts() -> None:
    scored = Record(Outcome.SCORED, Row({}), reward=1.0)
    summary = summary_of(scored, scored, failure("model_failed", "m"), failure("timeout", "t"), planned=6)
    assert summary_line(summary) == ("6 planned = 2 scored + 2 failed (1 model_failed, 1 timeout) + 2 unresolved")


def test_mean_reward_comes_first_with_agents_as_columns() -> None:
    metrics = [
        {
            "agent_ref": {"name": "a"},
            "agent_metrics": {"mean/reward": 0.25},
            "key_metrics": {"pass@1[avg-of-4]/x": 50.0},
        },
        {"agent_ref": {"name": "b"}, "agent_metrics": {"mean/reward": 1}, "key_metrics": {"mean/tokens": 12345}},
    ]
    page = io.StringIO()
    Console(file=page, width=100).print(tables.key_metrics(metrics))
    lines = [line.split() for line in page.getvalue().splitlines()[1:]]
    assert lines == [
        ["metric", "a", "b"],
        ["mean/reward", "0.25", "1"],
        ["mean/tokens", "–", "12,345"],
        ["pass@1[avg-of-4]/x", "50", "–"],
    ]


LEDGER = {"planned": 8, "scored": 4, "failed": {"lost": 1, "timeout": 1}, "unresolved": 2}


def shown(metrics: list[dict[str, object]]) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=160).print(tables.key_metrics(metrics))
    return [" ".join(line.split()) for line in page.getvalue().splitlines()[1:]]


def with_ledger(name: str) -> dict[str, object]:
    means = {"mean/reward": 0.75, "pessimistic/mean/reward": 0.5}
    return {"agent_ref": {"name": name}, "agent_metrics": means, "key_metrics": {}, "ledger": LEDGER}


def test_table_shows_coverage_and_pessimistic_reward() -> None:
    nothing = {"agent_ref": {"name": "b"}, "agent_metrics": {}, "key_metrics": {}}
    assert shown([with_ledger("a"), nothing]) == [
        "metric a b",
        "mean/reward 0.75 –",
        "scored of planned 4 of 8 (1 lost, 1 timeout, 2 unresolved) –",
        "pessimistic/mean/reward 0.5 –",
    ]
    lines = shown([with_ledger(f"agent_{n}") for n in range(5)])
    assert lines[:2] == [
        "agent mean/reward others scored of planned pessimistic/mean/reward",
        "agent_0 0.75 4 of 8 (1 lost, 1 timeout, 2 unresolved) 0.5",
    ]


def test_many_agents_have_one_row_each() -> None:
    metrics = [
        {"agent_ref": {"name": f"agent_{n}"}, "agent_metrics": {"mean/reward": n}, "key_metrics": {"a": 1, "b[x]": 2}}
        for n in range(5)
    ]
    page = io.StringIO()
    Console(file=page, width=100).print(tables.key_metrics(metrics))
    assert [line.split() for line in page.getvalue().splitlines()[2:4]] == [
        ["agent_0", "0", "a", "1,", "b[x]", "2"],
        ["agent_1", "1", "a", "1,", "b[x]", "2"],
    ]
