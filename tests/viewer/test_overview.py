"""The overview of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym.jsonl import JsonObject
from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.overview import overview_of
from tests.viewer.index_rows import failed, planned, scored, write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path / "x_materialized_inputs.jsonl", *(planned(task, at) for task in range(3) for at in (0, 1)))
    write(tmp_path / "x_failures.jsonl", failed(1, 1), failed(2, 0), failed(2, 0, attempt=1, cause="lost"))
    parts = {"reward_components": {"format": 1.0, "answer": 0.5}}
    return write(
        tmp_path / "x.jsonl",
        scored(0, 0, 1.0, **parts, _ng_seconds=2.0), scored(0, 1, 0.0, **parts), scored(1, 0, 0.5),
    )  # fmt: skip


@pytest.fixture
def library(results: Path) -> Iterator[Library]:
    library = Library([results], results.parent / "cache")
    library.finish()
    yield library
    library.close()


def overview(library: Library, query: str = "") -> JsonObject:
    return overview_of(library.runs()[0], Filter.parse(query))


def test_counts_and_rewards_are_shown(library: Library) -> None:
    found = overview(library)
    assert found["counts"] == {"planned": 6, "scored": 3, "failed": 2, "unresolved": 1}
    interval = mean_interval({0: [1.0, 0.0], 1: [0.5]})
    assert found["rewards"] == [
        {
            "agent": "counter_agent", "low": 0.0, "high": 1.0, "counts": [1, *[0] * 9, 1, *[0] * 8, 1], "mean": 0.5,
            "ci": [interval.low, interval.high],
        }
    ]  # fmt: skip


def test_each_agent_has_its_own_scale(tmp_path: Path) -> None:
    agents = {"cautious": (0.25, 1.0), "daring": (-30.0, 2.0)}
    rows = (
        scored(2 * at + task, 0, reward) | {"agent_ref": {"type": "responses_api_agents", "name": name}}
        for at, (name, rewards) in enumerate(agents.items())
        for task, reward in enumerate(rewards)
    )
    library = Library([write(tmp_path / "y.jsonl", *rows)], tmp_path / "cache")
    library.finish()
    found = overview(library)["rewards"]
    library.close()
    assert [(each["agent"], each["low"], each["high"]) for each in found] == [
        ("cautious", 0.0, 1.0), ("daring", -30.0, 2.0),
    ]  # fmt: skip


def test_heat_map_has_all_tasks(library: Library) -> None:
    assert overview(library)["heatmap"] == {
        "tasks": [{"first": 0, "count": 1}, {"first": 1, "count": 1}, {"first": 2, "count": 1}],
        "repeats": 2,
        "per_column": 1,
        "of_repeats": 2,
        "cells": [[1.0, 0.0], [0.5, "failed"], ["failed", None]],
    }


@pytest.mark.parametrize(("tasks", "per_row"), [(450, 1), (1500, 2)])
def test_repeats_of_many_tasks_share_a_square(tmp_path: Path, tasks: int, per_row: int) -> None:
    rows = (scored(10 * task, at, float(at < task % 3)) for task in range(tasks) for at in (0, 1))
    library = Library([write(tmp_path / "y.jsonl", *rows)], tmp_path / "cache")
    library.finish()
    found = overview(library)["heatmap"]
    library.close()
    assert len(found["tasks"]) == len(found["cells"]) == tasks // per_row
    assert (found["repeats"], found["per_column"], found["of_repeats"]) == (1, 2, 2)
    assert found["tasks"][1] == {"first": 10 * per_row, "count": per_row}
    assert found["cells"][:3] == ([[0.0], [0.5], [1.0]] if per_row == 1 else [[0.25], [0.5], [0.75]])


def test_many_repeats_share_squares(tmp_path: Path) -> None:
    rows = (scored(0, at, float(at % 2)) for at in range(81))
    library = Library([write(tmp_path / "y.jsonl", *rows)], tmp_path / "cache")
    library.finish()
    found = overview(library)["heatmap"]
    library.close()
    assert (found["repeats"], found["per_column"], found["of_repeats"]) == (41, 2, 81)
    assert found["cells"] == [[*[0.5] * 40, 0.0]]


def test_distributions_of_a_large_run_are_those_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.viewer.overview.MOST_SAMPLED", 100)
    rows = (scored(task, at, float(at % 2), _ng_seconds=task + at) for task in range(100) for at in range(10))
    library = Library([write(tmp_path / "y.jsonl", *rows)], tmp_path / "cache")
    library.finish()
    found = overview(library)
    library.close()
    seconds = next(each for each in found["distributions"] if each["name"] == "seconds")
    assert (found["sampled"], sum(seconds["counts"])) == (100, 100)
    assert seconds["mean"] == pytest.approx(54, abs=5)
    assert found["rewards"][0]["mean"] == 0.5
    assert sum(found["rewards"][0]["counts"]) == 1000


def test_failures_are_grouped_by_cause(library: Library) -> None:
    place = {"tier": "environment", "server": "counter", "count": 1}
    assert sorted(overview(library)["failures"], key=lambda each: str(each["cause"])) == [
        {"cause": "lost", **place, "example": {"task": 2, "repeat": 0, "message": "attempt 1 failed"}},
        {"cause": "timeout", **place, "example": {"task": 1, "repeat": 1, "message": "attempt 0 failed"}},
    ]


def test_distributions_and_components_are_shown(library: Library) -> None:
    found = overview(library)
    by_name = {each["name"]: each for each in found["distributions"]}
    assert set(by_name) == {"steps", "input_tokens", "output_tokens", "seconds"}
    tokens = by_name["input_tokens"]
    assert [tokens[name] for name in ("low", "high", "mean", "p50", "p95", "max")] == [0, 10, 10 / 3, 0, 10, 10]
    assert (sum(tokens["counts"]), tokens["counts"][0], tokens["counts"][-1]) == (3, 2, 1)
    assert found["components"] == [
        {"agent": "counter_agent", "name": name, "mean": value, "min": value, "max": value, "count": 2}
        for name, value in (("format", 1.0), ("answer", 0.5))
    ]


def test_filter_applies_to_everything(library: Library) -> None:
    found = overview(library, "task=0&field=reward_components.format=1")
    assert found["counts"] == {"planned": 2, "scored": 2, "failed": 0, "unresolved": 0}
    assert found["failures"] == []
    assert found["heatmap"]["cells"] == [[1.0, 0.0]]
    assert overview(library, "tool=none")["rewards"] == []


def test_progress_follows_recorded_times(tmp_path: Path) -> None:
    rows = []
    for task in range(10):
        call = {"model_call_id": "m", "dialect": "responses", "latency_total_ms": 4000.0}
        times = {"started_at": 1.7e9 + task, "completed_at": 1.7e9 + task + 4}
        rows.append(scored(task, ng_model_call_capture={"calls": [call | times]}))
    library = Library([write(tmp_path / "y.jsonl", *rows)], tmp_path / "cache")
    library.finish()
    found = overview(library)
    library.close()
    progress = found["progress"]
    assert (len(progress["at_s"]), progress["at_s"][0], progress["at_s"][-1]) == (300, 0.0, 13.0)
    assert (progress["finished"][0], progress["finished"][-1]) == (0, 10)
    assert (max(progress["in_flight"]), progress["in_flight"][-1]) == (4, 0)
    assert next(each["mean"] for each in found["distributions"] if each["name"] == "model_seconds") == 4.0


def test_runs_without_times_have_no_progress(library: Library) -> None:
    assert overview(library)["progress"] == {"at_s": [], "finished": [], "in_flight": []}
