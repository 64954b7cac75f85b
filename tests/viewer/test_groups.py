"""Groups of rollouts, tools and metrics, through the viewer's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.jsonl import write_rows
from nemo_gym.metrics.meanings import meaning_of
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import Ended, as_json
from nemo_gym.rollouts.outcome import Outcome
from tests.viewer.index_rows import Row, failed, scored, write
from tests.viewer.rollout_api import Api


def calling(task: int, repeat: int, *calls: tuple[str, Any], **fields: Any) -> Row:
    """Return a rollout with these calls: the name of each tool, and its result."""
    row = scored(task, repeat, **fields)
    row["response"]["output"] = [
        item
        for number, (name, output) in enumerate(calls)
        for item in (
            {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": output},
        )
    ]
    return row


def timed(*calls: tuple[str, float]) -> Row:
    """Return the recorded calls of a rollout: the name of each tool, and its milliseconds."""
    return {"tool_calls": [{"tool_name": name, "duration_ms": duration} for name, duration in calls]}


ROWS = [
    calling(0, 0, ("search", "ok"), ("search", "Error: no network"), ng_trajectory=timed(("search", 100.0))),
    calling(0, 1, ("search", "ok"), ng_trajectory=timed(*[("search", 100.0)] * 18, ("search", 900.0))),
    calling(1, 0, ("read", '{"error": "no such file"}'), ("search", "ok")),
    calling(1, 1, ("read", '{"text": ""}'), reward=0.0),
    scored(2, 0, 0.5, level=2, subset="b", is_hard=True),
    scored(2, 1, 0.0, level=10, subset="b", is_hard=False),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    write(tmp_path / "x_failures.jsonl", failed(3, 0, level=10))
    with Api(write(tmp_path / "x.jsonl", *ROWS)) as api:
        yield api


def test_groups_have_the_numbers_of_their_rollouts(api: Api) -> None:
    found = api.get("groups", by="level")
    assert (found["total"], [row["value"] for row in found["rows"]]) == (2, ["2", "10"])
    assert found["rows"][1] == {
        "value": "10", "rollouts": 2, "scored": 1, "solved": 0, "mean": 0.0, "low": 0.0, "high": 0.0, "std": None,
        "input_tokens": 20.0, "output_tokens": 5.0, "seconds": None, "failed": 1,
    }  # fmt: skip
    assert [row["value"] for row in api.get("groups", by="is_hard")["rows"]] == ["false", "true"]
    outcomes = {row["value"]: row["rollouts"] for row in api.get("groups", by="outcome")["rows"]}
    assert outcomes == {"failed": 1, "scored": 6}
    assert [row["rollouts"] for row in api.get("groups", by="task", outcome="scored")["rows"]] == [2, 2, 2]


def test_misspelled_group_is_rejected_with_a_suggestion(api: Api) -> None:
    detail = api.get("groups", 400, by="lvel")["detail"]
    assert "by=lvel: not a column of this run. Did you mean 'level'?" in detail


def test_tools_are_counted_with_their_failures(api: Api) -> None:
    rows = {row["name"]: row for row in api.get("tools")["rows"]}
    assert list(rows) == ["search", "read", "increment"]
    assert rows["search"] == {
        "name": "search", "calls": 4, "failed": 1, "rollouts": 3, "failing": 1, "p95_s": 0.1, "timed": 20,
        "example": {"task": 0, "repeat": 0},
    }  # fmt: skip
    assert (rows["read"]["failed"], rows["read"]["example"]) == (1, {"task": 1, "repeat": 0})
    assert [row["name"] for row in api.get("tools", task=1)["rows"]] == ["read", "search"]
    assert api.get("facets")["tools"][0] == {"value": "search", "count": 3}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"tool_failed": True}, [(0, 0), (1, 0)]),
        ({"tool_failed": True, "tool": "search"}, [(0, 0)]),
        ({"tool_failed": True, "tool": ["search", "read"]}, [(0, 0), (1, 0)]),
        ({"tool_failed": False, "task": [0, 1]}, [(0, 1), (1, 1)]),
        ({"tool": "read"}, [(1, 0), (1, 1)]),
    ],
)
def test_filter_finds_failed_tools(api: Api, query: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    assert [(row["task"], row["repeat"]) for row in api.get("rollouts", **query)["rows"]] == expected


def test_replaced_records_do_not_keep_their_calls(api: Api) -> None:
    assert api.get("tools")["rows"][0]["timed"] == 20
    results = api.library.runs()[0].files.results
    with results.open("ab") as file:
        file.write(json.dumps(calling(0, 1, ("read", "ok"), ng_trajectory=timed(("read", 7.0)))).encode() + b"\n")
    # Another filter, because results for the same one may be a moment late.
    rows = {row["name"]: row for row in api.get("tools", outcome="scored")["rows"]}
    assert (rows["search"]["calls"], rows["search"]["timed"], rows["read"]["p95_s"]) == (3, 1, 0.007)


@pytest.mark.parametrize(("tools", "failed_calls"), [({"increment": [3, 2]}, 2), ({"increment": [1, 0]}, 0)])
def test_failures_that_only_the_agent_saw_are_counted(tmp_path: Path, tools: Any, failed_calls: int) -> None:
    files = RunFiles(results=write(tmp_path / "x.jsonl", scored(0)))
    files.folder.mkdir()
    size = files.results.stat().st_size - 1
    ended = Ended(1.8e9, 0, 0, 0, Outcome.SCORED, tools=tools, file="results", offset=0, bytes=size, digest="")
    write_rows(files.ledger, [as_json(ended)])
    with Api(files.results) as api:
        [row] = api.get("tools")["rows"]
    assert (row["name"], row["failed"]) == ("increment", failed_calls)


@pytest.mark.parametrize("tasks", [0, 60_000])
def test_metrics_have_meanings(api: Api, tasks: int) -> None:
    path = api.library.runs()[0].files.metrics
    metrics = [
        {
            "agent_ref": {"name": agent},
            "group_level_metrics": [{"agent_ref": {"name": "x"}, "note": "{" * 80} for _ in range(tasks)],
            "agent_metrics": {"own": {"a": [1]}, "mean/reward": 0.5},
            "key_metrics": {"mean/reward": 0.5},
        }
        for agent in ("a", "b")
    ]
    path.write_bytes(orjson.dumps(metrics, option=orjson.OPT_INDENT_2))
    key = [
        {"agent": agent, "name": "mean/reward", "value": 0.5, "meaning": "the mean", "is_key": True} for agent in "ab"
    ]
    own = [{"agent": agent, "name": "own", "value": {"a": [1]}, "meaning": None, "is_key": False} for agent in "ab"]
    assert api.get("metrics") == {"of": 4, "total": 2, "has_keys": True, "rows": key}
    assert api.get("metrics", whole=True)["rows"] == [*key, *own]
    assert api.get("metrics", find="OWN b")["rows"] == own[1:]
    assert api.get("metrics", find="the mean")["rows"] == key
    path.write_bytes(b"[{")
    assert api.get("metrics") == {"of": 0, "total": 0, "has_keys": False, "rows": []}


def test_only_some_of_many_metrics_are_sent(api: Api) -> None:
    metrics = [{"agent_ref": {"name": "a"}, "agent_metrics": {f"pass@{k}": k for k in range(100_000)}}]
    api.library.runs()[0].files.metrics.write_bytes(orjson.dumps(metrics))
    found = api.get("metrics", whole=True)
    assert (found["total"], len(found["rows"])) == (100_000, 300)


def test_meanings_cover_subsets() -> None:
    meaning = "the mean score of the first 4 rollouts"
    assert meaning_of("pass@1[avg-of-4]/accuracy") == meaning_of("geography/pass@1[avg-of-4]/accuracy") == meaning
    assert meaning_of("ci95_low/pass@4/accuracy") is not None
    assert meaning_of("passes") is None
