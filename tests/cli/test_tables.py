"""Tests of the tables at the end of a run."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from nemo_gym.cli import tables
from nemo_gym.cli.rollouts import summary_line
from nemo_gym.data.catalog import Component
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


def test_narrow_table_of_benchmarks_lacks_long_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Component("sums", "benchmark", Path("sums.yaml"), description="Sums of two numbers")]
    whole = ["name", "domain", "rows", "repeats", "licence", "data", "description"]
    assert [column.header for column in tables.benchmarks(found).columns] == whole
    monkeypatch.setenv("FORCE_COLOR", "1")
    for width, headers in (("100", whole), ("80", ["name", "domain", "rows", "repeats", "data"])):
        monkeypatch.setenv("COLUMNS", width)
        assert [column.header for column in tables.benchmarks(found).columns] == headers


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
        ["pass@1[avg-of-4]/x", "50%", "–"],
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


def lines_of(metrics: list[dict[str, object]], width: int = 200, **options: bool) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(tables.agents(metrics, **options))
    return [line.rstrip() for line in page.getvalue().splitlines()]


def first_words(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[1:]]


def graded(name: str, reward: float, **found: object) -> dict[str, object]:
    metrics = {
        "mean/reward": reward, "min/reward": 0, "max/reward": 1, "ci95_low/reward": 0.1, "ci95_high/reward": 0.9,
        "pass@1/accuracy": 50.0, "pass@4/accuracy": 75.0, "mean/output_tokens": 12.5, **found,
    }  # fmt: skip
    keys = {key: value for key, value in metrics.items() if key.startswith("mean/")}
    return {"agent_ref": {"name": name}, "agent_metrics": metrics, "key_metrics": keys, "ledger": LEDGER}


def test_each_agent_has_one_line() -> None:
    above = {"agent_ref": {"name": "b"}, "agent_metrics": {"mean/reward": -7.5, "max/reward": 2}, "key_metrics": {}}
    assert lines_of([graded("a", 0.25), graded("c", 1.0), above]) == [
        "agent  reward  95% interval            scored  pass@4  tokens out",
        "a        0.25       0.1…0.9  ██           4/8    0.75        12.5",
        "c           1       0.1…0.9  ████████     4/8    0.75        12.5",
        "b        -7.5",
    ]


def test_parts_of_the_reward_are_indented_unless_there_are_many_agents() -> None:
    found = [graded(name, 0.5, **{"mean/format": 1.0, "mean/total_tokens": 9}) for name in "ab"]
    assert first_words(lines_of(found)) == ["a", "format", "b", "format"]
    many = [graded(f"agent_{number}", 0.5, **{"mean/format": 1.0}) for number in range(5)]
    assert first_words(lines_of(many)) == [f"agent_{number}" for number in range(5)]


def test_benchmarks_show_their_main_metrics() -> None:
    main = "pass@1[avg-of-4]/accuracy"
    found = [graded(name, 0.5) for name in "ab"]
    for each in found:
        each["key_metrics"] = {"mean/format": 1.0, main: 50.0, f"x/{main}": 9.0}
    lines = lines_of(found, are_benchmarks=True)
    assert first_words(lines) == ["a", main, "b", main]
    assert lines[2].split()[1] == "50%"


def test_narrow_terminal_leaves_out_columns_and_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [graded(f"example_session_state_mgmt_{number}_agent", 0.5) for number in range(2)]
    monkeypatch.setenv("FORCE_COLOR", "1")
    headings = {}
    for width in (120, 80, 64, 50, 30):
        monkeypatch.setenv("COLUMNS", str(width))
        heading, *lines = lines_of(found, width)
        assert len(lines) == 2
        assert max(map(len, lines)) <= width
        headings[width] = re.split(r"  +", heading)
    assert headings == {
        120: ["agent", "reward", "95% interval", "scored", "pass@4", "tokens out"],
        80: ["agent", "reward", "95% interval", "scored", "pass@4"],
        64: ["agent", "reward", "95% interval", "scored"],
        50: ["agent", "reward", "scored"],
        30: ["agent", "reward", "scored"],
    }


def agent_with(agent_metrics: dict[str, object], **fields: object) -> dict[str, object]:
    key_metrics = {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}
    return {"agent_ref": {"name": "a"}, "agent_metrics": agent_metrics, "key_metrics": key_metrics, **fields}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("agents", [1, 3, 6])
def test_narrow_terminal_shows_every_number(monkeypatch: pytest.MonkeyPatch, width: int, agents: int) -> None:
    metrics = [
        {
            "agent_ref": {"name": f"example_session_state_mgmt_simple_agent_{number}"},
            "agent_metrics": {
                "mean/reward": number / 8, "min/reward": 0, "max/reward": 1,
                "ci95_low/reward": 0.1, "ci95_high/reward": 0.8 + number / 1000,
            },
            "key_metrics": {"mathematics/pass@1[avg-of-4]/accuracy": 11.5 + number, "mean/tokens": 1234.5 + number},
            "ledger": {"planned": 32, "scored": 24 - number, "unresolved": 0, "failed": {"invalid_task": 8 + number}},
        }
        for number in range(agents)
    ]  # fmt: skip
    wide = tables.key_metrics(metrics)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    page, wide_page = io.StringIO(), io.StringIO()
    Console(file=page, width=width, color_system=None).print(tables.key_metrics(metrics))
    Console(file=wide_page, width=1000, color_system=None).print(wide)
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    numbers = re.compile(r"(?<![\w@-])\d[\d.,]*%?(?![\w@-])")
    assert set(numbers.findall(page.getvalue())) >= set(numbers.findall(wide_page.getvalue()))
    for agent in metrics:
        at = next(at for at, line in enumerate(lines) if line.endswith(agent["agent_ref"]["name"]))
        rewards = [" ".join(line.split()) for line in lines[at + 1 :] if line.split()[0] == "mean/reward"]
        assert rewards[0] == f"mean/reward {12.5 * metrics.index(agent):g}%"


def test_shares_of_one_table_are_in_percent() -> None:
    found = {
        "mean/reward": 1 / 3, "min/reward": 0.0, "max/reward": 1.0, "ci95_low/reward": 0.2, "ci95_high/reward": 0.5,
        "mean/solved": 0.25, "min/solved": 0, "max/solved": 1,
        "mean/seconds": 0.25, "min/seconds": 0.1, "max/seconds": 0.5,
        "pass@1/accuracy": 33.3333, "pass@2/accuracy": 50.0, "majority@2/accuracy": 12.5,
        "ci95_low/pass@2/accuracy": 25.04, "ci95_high/pass@2/accuracy": 75.0,
    }  # fmt: skip
    assert shown([agent_with(found)]) == [
        "metric a",
        "mean/reward 33.33%",
        "95% interval 20–50%",
        "majority@2/accuracy 12.5%",
        "mean/seconds 0.25",
        "mean/solved 25%",
        "pass@2/accuracy 50%",
        "95% interval 25–75%",
    ]
    lost = {"mean/reward": -1.0, "min/reward": -1.0, "max/reward": 1.0}
    assert shown([agent_with(lost)])[1] == "mean/reward -1"


@pytest.mark.parametrize("name", ["pass@4/accuracy", "majority@4/accuracy", "pass@1[avg-of-4]/accuracy"])
def test_metric_names_its_tasks_if_some_have_fewer_rollouts(name: str) -> None:
    agent = agent_with({name: 50.0}, group_level_metrics=[{"num_rollouts": count} for count in (4, 3, 4)])
    agent["key_metrics"] = {name: 50.0}
    assert f"{name} 50% (2 of 3 tasks)" in shown([agent])
    for groups in ([{"num_rollouts": 4}] * 3, [{"num_rollouts": 2}] * 3, [{}, {"num_rollouts": None}]):
        agent["group_level_metrics"] = groups
        assert f"{name} 50%" in shown([agent])


def test_token_counts_are_not_in_percent() -> None:
    one_each = {"mean/output_tokens": 1.0, "min/output_tokens": 1, "max/output_tokens": 1}
    assert "mean/output_tokens 1" in shown([agent_with(one_each)])


def test_counts_of_at_most_one_are_not_in_percent() -> None:
    found = {
        "mean/reward": 0.5, "min/reward": 0, "max/reward": 1,
        "mean/attempts": 0.5, "min/attempts": 0, "max/attempts": 1,
    }  # fmt: skip
    assert shown([agent_with(found, integer_fields=["attempts", "reward"])]) == [
        "metric a",
        "mean/reward 50%",
        "mean/attempts 0.5",
    ]


def test_shares_of_subsets_and_of_pairs_are_in_percent() -> None:
    found = {
        "mean/wer": 0.5, "min/wer": 0, "max/wer": 1, "beeps/mean/wer": 1.0,
        "judged_pairs_pct": 100.0, "letter/ties_pct": 43.3333,
    }  # fmt: skip
    assert shown([agent_with(found, key_metrics=found)])[2:] == [
        "beeps/mean/wer 100%",
        "judged_pairs_pct 100%",
        "letter/ties_pct 43.33%",
        "max/wer 1",
        "mean/wer 50%",
        "min/wer 0",
    ]


def test_numbers_of_the_rows_are_not_shown() -> None:
    assert shown([agent_with({"mean/reward": 1.0, "mean/level": 3.0}, row_fields=["level"])]) == [
        "metric a",
        "mean/reward 1",
    ]


def test_histogram_counts_each_reward_or_bins_them() -> None:
    page = io.StringIO()
    Console(file=page, width=100).print(tables.histogram([0.0, 1.0, 1.0, 1.0, 1.0], title="Rewards of a"))
    lines = [line.split() for line in page.getvalue().splitlines()]
    assert lines == [
        ["Rewards", "of", "a"],
        ["reward", "rollouts"],
        ["0", "1", "█" * 10],
        ["1", "4", "█" * 40],
    ]
    page = io.StringIO()
    Console(file=page, width=100).print(tables.histogram([n / 100 for n in range(101)], title="Rewards"))
    lines = [line.split() for line in page.getvalue().splitlines()[2:]]
    assert (len(lines), lines[0][:4], lines[-1][:4]) == (10, ["0", "…", "0.1", "10"], ["0.9", "…", "1", "11"])
