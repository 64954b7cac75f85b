"""Files that could block, break or flood the viewer: pipes, links, strange names and extreme values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest

from nemo_gym.jsonl import write_rows
from nemo_gym.viewer import rollout
from tests.viewer.rollout_api import Api
from tests.viewer.small_run import write_run

PATIENCE_S = 100
SUFFIXES = (".jsonl", "_failures.jsonl", "_materialized_inputs.jsonl", "_run.json", "_notes.jsonl")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return write_run(tmp_path / "results")


@pytest.fixture
def open_api() -> Iterator[Callable[..., Api]]:
    opened: list[Api] = []

    def open_paths(*paths: Path) -> Api:
        opened.append(Api(*paths))
        return opened[-1]

    yield open_paths
    for api in opened:
        api.__exit__()


def within_patience(act: Callable[[], None]) -> None:
    """Run a function in a thread, because a pipe without a writer blocks its reader forever."""
    problems: list[Exception] = []

    def run() -> None:
        try:
            act()
        except (AssertionError, OSError) as error:
            problems.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the viewer waits for a pipe"
    if problems:
        raise problems[0]


def test_pipes_are_never_opened(results: Path, open_api: Callable[..., Api]) -> None:
    write_run(results.parent, "good")
    for suffix in (*SUFFIXES[1:], "_aggregate_metrics.json"):
        path = results.with_name(f"small{suffix}")
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    os.mkfifo(results.with_name(".small.jsonl.lock"))
    os.mkfifo(results.with_name("alone.jsonl"))

    def look() -> None:
        api = open_api(results.parent, results.with_name("alone.jsonl"))
        api.library.finish()
        found = api.client.get("/api/runs").json()
        assert sorted((run["name"], run["scored"]) for run in found["runs"]) == [("good", 3), ("small", 3)]
        assert "not a regular file" in str(found["problems"])
        run = api.id_of(results)
        for route in ("rollouts", "overview", "facets", "notes"):
            api.get(route, run=run)
        refused = api.client.post("/api/notes", json={"run": run, "task": 0, "repeat": 0, "star": True})
        assert refused.status_code == 409, refused.text

    within_patience(look)


def test_links_in_a_circle_are_reported(results: Path, open_api: Callable[..., Api]) -> None:
    for name in ("circle.jsonl", "small_run.json"):
        results.with_name(name).symlink_to(results.with_name(name))
    api = open_api(results.parent)
    found = api.client.get("/api/runs").json()
    assert [run["name"] for run in found["runs"]] == ["small"]
    assert [Path(each["file"]).name for each in found["problems"]] == ["circle.jsonl"]


def test_linked_metrics_are_not_read(results: Path, open_api: Callable[..., Api], tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(orjson.dumps([{"agent_metrics": {"secret": 1}}]))
    results.with_name("small_aggregate_metrics.json").symlink_to(secret)
    assert open_api(results.parent).get("metrics")["rows"] == []


def test_names_need_not_be_unicode(results: Path, open_api: Callable[..., Api]) -> None:
    with open(os.fsencode(results.parent) + b"/odd\xff.jsonl", "wb") as file:
        file.write(results.read_bytes())
    api = open_api(results.parent)
    found = api.client.get("/api/runs").json()["runs"]
    assert sorted(run["name"] for run in found) == ["odd?", "small"]
    odd = next(run["id"] for run in found if run["name"] == "odd?")
    assert api.get("rollout", 404, run=odd, task=99, repeat=0)["detail"].startswith("The run odd? has no rollout")


def test_directories_are_not_results(results: Path, open_api: Callable[..., Api]) -> None:
    failures = results.with_name("small_failures.jsonl")
    failures.unlink()
    failures.mkdir()
    api = open_api(results.parent)
    run = api.client.get(f"/api/runs/{api.run}").json()
    assert (run["scored"], run["unresolved"]) == (3, 1)
    assert [Path(each["file"]).name for each in run["problems"]] == ["small_failures.jsonl"]


def with_value(results: Path, value: bytes) -> None:
    """Give the role of the first rollout's message a value."""
    results.write_bytes(results.read_bytes().replace(b'"assistant"', value, 1))


def test_deep_nesting_is_a_problem_of_one_rollout(results: Path, open_api: Callable[..., Api]) -> None:
    with_value(results, b"[" * 990 + b"]" * 990)
    failures = results.with_name("small_failures.jsonl")
    failures.write_bytes(failures.read_bytes().replace(b'"the rollout took longer than 5 s"', b"[" * 990 + b"]" * 990))
    api = open_api(results.parent)
    deep = api.client.get("/api/rollout", params={"run": api.run, "task": 0, "repeat": 0})
    # Newer versions of Python write such a value as text, and Python 3.11 raises an error.
    assert deep.status_code == 200 or (deep.status_code == 409 and "too deeply" in deep.json()["detail"])
    assert api.get("rollout", task=1, repeat=0)["reward"] == 0.5
    assert re.search(r"too deeply|\[{100}", api.get("overview")["failures"][0]["example"]["message"])
    raw = api.client.get("/api/raw", params={"run": api.run, "task": 0, "repeat": 0})
    assert (raw.status_code, raw.content) == (200, results.read_bytes().splitlines()[0])


def test_many_values_are_not_parsed(results: Path, open_api: Callable[..., Api], monkeypatch: Any) -> None:
    monkeypatch.setattr(rollout, "MOST_VALUES", 1000)
    with_value(results, b"[" + b"[]," * 1000 + b"[]]")
    api = open_api(results.parent)
    assert "too many to show" in api.get("rollout", 409, task=0, repeat=0)["detail"]


def test_extreme_numbers_are_left_out(results: Path, open_api: Callable[..., Api]) -> None:
    huge = b"9" * 400
    padding = b'{"responses_create_params": {"input": "' + b"x" * (33 << 20) + b'"}, "response": {}, '
    with results.open("ab") as file:
        file.write(padding + b'"reward": 1e999, "_ng_task_index": 7, "_ng_attempt_index": 99999999999999999999}\n')
        file.write(padding + b'"reward": 1, "_ng_task_index": %b, "_ng_rollout_index": %b}\n' % (huge, huge))
        file.write(b'{"response": {}, "reward": 1e308, "_ng_task_index": 8}\n{"response": {}, "reward": -1e308}\n')
    api = open_api(results.parent)
    rows = api.get("rollouts", outcome="scored")["rows"]
    assert {row["task"]: row["reward"] for row in rows if row["task"] > 1} == {7: None, 4: 1.0, 8: None, 6: None}
    assert api.get("overview")["counts"]["scored"] == 7


def test_long_names_of_fields_are_not_columns(results: Path, open_api: Callable[..., Api]) -> None:
    write_rows(results, [{"response": {}, "reward": 1, "k" * 10_000: 1, "inner": {"k" * 10_000: 1}, "fine": 1}])
    assert [field["name"] for field in open_api(results.parent).get("facets")["fields"]] == ["fine", "subset"]
