"""The tables of a run's tasks, through the viewer's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewer.index_rows import failed, planned, scored, write
from tests.viewer.rollout_api import Api

REWARDS = [(0.0, 0.0), (0.0, 1.0, 1.0), (1.0, 1.0), (0.5, 0.5), (0.2, 0.4), (2.0,), ()]
"""The rewards of each task; the last task failed."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    rows = [
        scored(task, repeat, reward, _ng_seconds=task + repeat)
        for task, rewards in enumerate(REWARDS)
        for repeat, reward in enumerate(rewards)
    ]
    write(tmp_path / "x_failures.jsonl", failed(6, 0), failed(1, 3))
    write(tmp_path / "x_materialized_inputs.jsonl", *(planned(task, at) for task in range(8) for at in range(4)))
    with Api(write(tmp_path / "x.jsonl", *rows)) as api:
        yield api


def test_tasks_are_counted_by_kind(api: Api) -> None:
    assert api.get("tasks")["counts"] == {"all": 8, "never": 2, "mixed": 2, "always": 2}
    kinds = {"never": [0, 3], "mixed": [1, 4], "always": [2, 5]}
    assert {kind: [row["task"] for row in api.get("tasks", kind=kind)["rows"]] for kind in kinds} == kinds
    # The filter decides which repeats count.
    assert api.get("tasks", repeat=[1, 2])["counts"] == {"all": 8, "never": 3, "mixed": 0, "always": 2}
    assert api.get("tasks", outcome="scored", task=6)["counts"] == {"all": 0, "never": 0, "mixed": 0, "always": 0}


def test_task_has_the_numbers_of_its_rollouts(api: Api) -> None:
    rows = {row["task"]: row for row in api.get("tasks")["rows"]}
    assert rows[1] == {
        "task": 1, "title": "Question 1 with spaces", "rollouts": 4, "scored": 3, "solved": 2,
        "mean": pytest.approx(2 / 3), "low": 0.0, "high": 1.0, "std": pytest.approx(3**-0.5), "input_tokens": 10.0,
        "output_tokens": 5.0, "seconds": 2.0, "failed": 1,
    }  # fmt: skip
    nothing = dict.fromkeys(("mean", "low", "high", "std", "input_tokens", "output_tokens", "seconds"))
    assert rows[6] | nothing == rows[6]
    assert (rows[5]["std"], rows[2]["std"], rows[7]["failed"]) == (None, 0.0, 0)


@pytest.mark.parametrize(
    ("sort", "ascending"),
    [
        ("mean", [0, 4, 3, 1, 2, 5, 6, 7]),
        ("solved", [0, 3, 4, 6, 7, 5, 1, 2]),
        ("std", [0, 2, 3, 4, 1, 5, 6, 7]),
        ("failed", [0, 2, 3, 4, 5, 7, 1, 6]),
    ],
)
def test_tasks_are_sorted_with_missing_values_last(api: Api, sort: str, ascending: list[int]) -> None:
    assert [row["task"] for row in api.get("tasks", sort=sort)["rows"]] == ascending
    descending = [row for row in api.get("tasks", sort=sort, order="desc")["rows"]]
    known = [row[sort] for row in descending if row[sort] is not None]
    assert known == sorted(known, reverse=True)
    assert all(row[sort] is None for row in descending[len(known) :])


def test_unknown_kinds_and_orders_are_rejected(api: Api) -> None:
    for name, value in (("kind", "some"), ("sort", "title; DROP TABLE rollouts"), ("order", "up"), ("offset", -1)):
        assert name in api.get("tasks", status=400, **{name: value})["detail"]


def test_tasks_come_in_pages(tmp_path: Path) -> None:
    with Api(write(tmp_path / "y.jsonl", *(scored(task, 0, task % 2) for task in range(250)))) as api:
        pages = [api.get("tasks", kind="always", offset=offset) for offset in (0, 100, 200)]
    assert [len(page["rows"]) for page in pages] == [100, 25, 0]
    assert [row["task"] for page in pages for row in page["rows"]] == list(range(1, 250, 2))
