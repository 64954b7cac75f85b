"""The library: which files are runs, their state, and the routes that list them."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.viewer.app import api_of
from nemo_gym.viewer.discovery import NOT_READ
from nemo_gym.viewer.index import store
from nemo_gym.viewer.index.indexer import Indexer
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.run_view import RunView
from tests.viewer.index_rows import append, failed, lines, planned, scored, write
from tests.viewer.rollout_api import not_running


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def library_of(opened: ExitStack, cache: Path, *paths: Path) -> Library:
    library = Library(paths, cache)
    opened.callback(library.close)
    library.finish()
    return library


def client_of(library: Library) -> TestClient:
    return TestClient(api_of(library, not_running))


def write_record(results: Path, **changes: object) -> None:
    outcomes = {"planned": 4, "scored": 1, "kept": 0, "failed": {}, "unresolved": 3, "repeated_attempts": 0}
    record = {
        "state": "running", "started_at": datetime.now(UTC).isoformat(), "command": ["ng", "eval", "run"],
        "pid": os.getpid(), "host": socket.gethostname(), "versions": {}, "outcomes": outcomes,
        "models": {"policy_model": {"temperature": 0.5, "seed": None}}, "policy_model_name": "a-policy",
        "input": {"path": "x", "sha256": "", "bytes": 1}, "settings": {"num_repeats": 4, "limit": None},
    }  # fmt: skip
    RunFiles(results=results).record.write_bytes(orjson.dumps(record | changes))


def test_runs_of_a_folder_are_found(tmp_path: Path, opened: ExitStack) -> None:
    folder = tmp_path / "results"
    (folder / "deep" / "er").mkdir(parents=True)
    for name in ("z_logs", "starting_run", "baseline_run"):
        (folder / name).mkdir()
    write(folder / "plain.jsonl", scored(0))
    write(folder / "baseline_run" / "x.jsonl", scored(0))
    write(folder / "starting_run" / "ungraded.jsonl", scored(0))
    write(folder / "deep" / "er" / "x.jsonl")
    write(folder / "deep" / "er" / "x_failures.jsonl", failed(0))
    write(folder / "starting_materialized_inputs.jsonl", planned(0))
    for name in ("plain_notes.jsonl", "dataset.jsonl", "z_logs/server.jsonl", "x_reward_profiling.jsonl", ".h.jsonl"):
        write(folder / name, {"question": "?"})
    library = library_of(opened, tmp_path / "cache", folder)
    assert sorted(run.name for run in library.runs()) == ["baseline_run/x", "deep/er/x", "plain", "starting"]
    assert library.problems() == []
    run = next(run for run in library.runs() if run.name == "starting")
    assert library.run(run.id) is run
    with pytest.raises(KeyError):
        library.run("unknown")


def test_new_runs_appear(tmp_path: Path, opened: ExitStack) -> None:
    library = library_of(opened, tmp_path / "cache", tmp_path)
    client = client_of(library)
    assert client.get("/api/runs").json() == {"runs": [], "problems": []}
    write(tmp_path / "new.jsonl", scored(0))
    until = time.monotonic() + 100
    while not (found := client.get("/api/runs").json()["runs"]) or not found[0]["scored"]:
        assert time.monotonic() < until, "the new run did not appear"
        time.sleep(0.05)
    assert (found[0]["name"], found[0]["mean_reward"]) == ("new", 1.0)


def test_other_files_are_reported(tmp_path: Path, opened: ExitStack) -> None:
    write(tmp_path / "dataset.jsonl", {"question": "?"})
    write(tmp_path / "empty.jsonl")
    library = library_of(opened, tmp_path / "cache", tmp_path / "dataset.jsonl", tmp_path / "empty.jsonl")
    assert library.runs() == []
    assert [(Path(each["file"]).name, each["message"]) for each in library.problems()] == [
        ("dataset.jsonl", "no line is a rollout with a reward."),
        ("empty.jsonl", "the file is empty."),
    ]


def test_links_do_not_lead_out(tmp_path: Path, opened: ExitStack) -> None:
    secret = write(tmp_path / "secret.jsonl", scored(0), failed(1))
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(secret)
    write(folder / "x.jsonl", scored(0))
    (folder / "x_failures.jsonl").symlink_to(secret)
    library = library_of(opened, tmp_path / "cache", folder)
    (run,) = library.runs()
    assert (run.name, run.as_json()["failed"]) == ("x", 0)
    assert [each["message"] for each in (*library.problems(), *run.as_json()["problems"])] == [
        NOT_READ,
        NOT_READ,
    ]
    assert not library.runs()[0].index.allows(folder / "x_failures.jsonl")
    assert not library.runs()[0].index.allows(folder / ".." / "secret.jsonl")


def test_run_describes_itself(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0, 0, 1.0), scored(0, 1, 0.0), scored(1, 0, 1.0))
    write(tmp_path / "x_failures.jsonl", failed(1, 1))
    write(tmp_path / "x_materialized_inputs.jsonl", *(planned(task, at) for task in range(3) for at in (0, 1)))
    write_record(results, state="finished", started_at="2026-01-01T10:00:00+00:00", ended_at="2026-01-01T10:01:30Z")
    library = library_of(opened, tmp_path / "cache", results)
    (run,) = library.runs()
    found = run.as_json()
    size = sum(path.stat().st_size for path in tmp_path.glob("x*.jsonl"))
    expected = {
        "name": "x", "path": str(results), "state": "finished", "seconds": 90.0, "planned": 6, "scored": 3,
        "failed": 1, "unresolved": 2, "mean_reward": 2 / 3, "pass_at": {"1": 0.75}, "model": "a-policy",
        "agents": ["counter_agent"], "command": ["ng", "eval", "run"], "problems": [], "is_live": False,
        "settings": {"num_repeats": 4, "models.policy_model.temperature": 0.5},
        "indexed": {"bytes": size, "of": size},
            "has": dict.fromkeys(("tokens", "timeline", "components", "training"), False) | {"tools": True},
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_duration_covers_all_sessions(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    times = {"started_at": "2026-01-01T10:00:00+00:00", "ended_at": "2026-01-01T10:01:30+00:00"}
    write_record(results, state="interrupted", **times)
    ended = orjson.loads((tmp_path / "x_run.json").read_bytes())
    unknown = {**ended, "state": "killed", "ended_at": None}
    killed = {**unknown, "ended_at": "2026-01-01T10:00:20+00:00"}
    later = {"started_at": "2026-01-02T10:00:00+00:00", "ended_at": "2026-01-02T10:00:05+00:00"}
    (run,) = library_of(opened, tmp_path / "cache", results).runs()
    for earlier, seconds in (([ended], 95.0), ([ended, killed], 115.0), ([unknown], 5.0)):
        write_record(results, state="finished", **later, earlier_sessions=earlier)
        run.refresh()
        assert run.as_json()["seconds"] == seconds


def test_pass_at_k_covers_all_tasks(tmp_path: Path, opened: ExitStack) -> None:
    rewards = [(1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0)]
    rows = [scored(task, at, reward) for task, each in enumerate(rewards) for at, reward in enumerate(each)]
    (run,) = library_of(opened, tmp_path / "cache", write(tmp_path / "x.jsonl", *rows)).runs()
    found = run.as_json()["pass_at"]
    assert {k: round(value, 3) for k, value in found.items()} == {"1": 0.25, "2": 0.417, "3": 0.5}


def test_lines_that_come_and_a_torn_line_are_not_missing(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    with results.open("ab") as file:
        file.write(b'{"response": {')
    write_record(results)
    (run,) = library_of(opened, tmp_path / "cache", results).runs()
    size = results.stat().st_size
    assert run.as_json()["indexed"] == {"bytes": size, "of": size}
    append(results, {}, scored(1))
    assert run.as_json()["indexed"] == {"bytes": results.stat().st_size, "of": results.stat().st_size}
    write_record(results, state="interrupted")
    assert run.as_json()["indexed"] == {"bytes": size - 14, "of": results.stat().st_size}


def test_run_says_what_it_was_asked_for(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    (run,) = library_of(opened, tmp_path / "cache", results).runs()
    refused = {"verb": "resume", "answer": {"error": "not now"}}
    asked = [{"verb": verb, "answer": {"changed": True}} for verb in ("pause", "concurrency", "resume", "drain")]
    phases = []
    for control in (None, asked[:1], [*asked[:2], refused], asked[:3], asked):
        write_record(results, control=control)
        phases.append(run.as_json()["phase"])
    assert phases == [None, "paused", "paused", None, "draining"]
    write_record(results, control=asked, state="finished")
    assert run.as_json()["phase"] is None


def test_releases_have_their_own_indexes(tmp_path: Path, opened: ExitStack, monkeypatch: Any) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    (ours,) = library_of(opened, tmp_path / "cache", results).runs()
    before = ours.index.path.stat()
    with monkeypatch.context() as other_release:
        other_release.setattr(store, "VERSION", store.VERSION ^ 1)
        (theirs,) = library_of(opened, tmp_path / "cache", results).runs()
        assert theirs.as_json()["scored"] == 1
    assert ours.index.path.stat() == before
    assert ours.as_json()["scored"] == 1


def state_of(library: Library) -> object:
    (run,) = library.runs()
    return run.as_json()["state"]


def test_killed_run_is_recognized(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    library = library_of(opened, tmp_path / "cache", results)
    assert state_of(library) == "unknown"
    write_record(results)
    assert state_of(library) == "running"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(100)
    write_record(results, pid=ended.pid)
    assert state_of(library) == "killed"
    with RunFiles(results=results).lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state_of(library) == "running"
    assert state_of(library) == "killed"
    RunFiles(results=results).record.write_bytes(b"{")
    (run,) = library.runs()
    assert run.as_json()["state"] == "unknown"
    assert [each["message"] for each in run.as_json()["problems"]] == [
        "the record of the run is not readable, so its settings are not shown."
    ]


def test_routes_return_rows_and_facets(tmp_path: Path, opened: ExitStack) -> None:
    rows = [scored(task, reward=task % 2, subset="a" if task < 3 else "b") for task in range(5)]
    results = write(tmp_path / "x.jsonl", *rows)
    write(tmp_path / "x_failures.jsonl", failed(9))
    library = library_of(opened, tmp_path / "cache", results)
    client, run = client_of(library), library.runs()[0]
    found = client.get(
        f"/api/rollouts?run={run.id}&sort=reward&order=desc&limit=2&column=subset&outcome=scored"
    ).json()
    assert (found["total"], found["offset"]) == (5, 0)
    assert [(row["task"], row["reward"], row["fields"]) for row in found["rows"]] == [
        (1, 1.0, {"subset": "a"}),
        (3, 1.0, {"subset": "b"}),
    ]
    facets = client.get(f"/api/facets?run={run.id}").json()
    assert facets["tools"] == [{"value": "increment", "count": 5}]
    assert facets["failures"] == [{"value": "timeout", "count": 1}]
    assert facets["fields"] == [
        {"name": "subset", "kind": "text", "values": [{"value": "a", "count": 3}, {"value": "b", "count": 2}]}
    ]
    assert facets["reward"] == {"min": 0.0, "max": 1.0}
    lines_of = client.get(f"/api/selection?run={run.id}&reward_min=1")
    assert lines_of.content == lines(rows[1], rows[3])
    assert lines_of.headers["content-disposition"] == 'attachment; filename="x_selection.jsonl"'


def test_offered_numbers_select_their_rollouts(tmp_path: Path, opened: ExitStack) -> None:
    numbers = [1 / 3, 0.1 + 0.2, 2.0, -0.5, 1e-9, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63]
    rows = [scored(task, score=number) for task, number in enumerate(numbers)]
    library = library_of(opened, tmp_path / "cache", write(tmp_path / "x.jsonl", *rows))
    client, run = client_of(library), library.runs()[0].id
    (field,) = client.get(f"/api/facets?run={run}").json()["fields"]
    values = [each["value"] for each in field["values"]]
    assert {"2", "-0.5", "0.3333333333333333"} <= set(values)
    pages = [client.get("/api/rollouts", params={"run": run, "field": f"score={value}"}).json() for value in values]
    assert sorted([row["task"] for row in page["rows"]] for page in pages) == [[task] for task in range(len(rows))]


def test_facets_follow_replaced_records(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0, subset="a"))
    write(tmp_path / "x_failures.jsonl", failed(1, subset="a"))
    library = library_of(opened, tmp_path / "cache", results)
    append(results, scored(1, subset="b"))
    library.finish()
    facets = client_of(library).get(f"/api/facets?run={library.runs()[0].id}").json()
    values = {field["name"]: field["values"] for field in facets["fields"]}
    assert values["subset"] == [{"value": "a", "count": 1}, {"value": "b", "count": 1}]


def test_bad_requests_are_explained(tmp_path: Path, opened: ExitStack) -> None:
    library = library_of(opened, tmp_path / "cache", write(tmp_path / "x.jsonl", scored(0)))
    client, run = client_of(library), library.runs()[0].id

    def detail(path: str) -> JsonObject:
        reply = client.get(f"/api/{path}")
        return {"status": reply.status_code, "detail": reply.json()["detail"]}

    missing = "run nope does not exist (any more). Go back to the list of runs."
    assert detail("rollouts?run=nope") == {"status": 404, "detail": missing}
    wrong = "reward_min: it must be a valid number, but is 'x'."
    assert detail(f"overview?run={run}&reward_min=x") == {"status": 400, "detail": wrong}
    for query in ("limit=0", "limit=100000", "offset=-1", "order=up"):
        assert client.get(f"/api/rollouts?run={run}&{query}").status_code == 400


def test_unwritable_cache_is_replaced(tmp_path: Path, opened: ExitStack) -> None:
    results = write(tmp_path / "x.jsonl", scored(0))
    blocked = write(tmp_path / "blocked")
    library = library_of(opened, blocked / "cache", results)
    assert library.runs()[0].as_json()["scored"] == 1


def test_counts_come_from_the_record_until_the_run_is_indexed(tmp_path):
    files = RunFiles(results=tmp_path / "x.jsonl")
    write(files.results, scored(0, 0), scored(0, 1))
    write_record(files.results, outcomes={
        "planned": 9, "scored": 2, "kept": 0, "failed": {"lost": 3}, "unresolved": 4, "repeated_attempts": 0,
    })  # fmt: skip
    run = RunView("x", files, tmp_path / "cache", Indexer(), allows=lambda _: True)

    def counts():
        return [run.as_json()[name] for name in ("planned", "scored", "failed", "unresolved")]

    assert counts() == [9, 2, 3, 4]
    assert run.index.index_some(60) is False
    assert counts() == [9, 2, 0, 7]
