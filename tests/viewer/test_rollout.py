"""Tests of single rollouts, tasks, raw records and notes, through the viewer's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line, read_rows
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer import rollout
from nemo_gym.viewer.rollout import place_of
from nemo_gym.viewer.routes_rollouts import Asked, raw
from tests.viewer.rollout_api import Api
from tests.viewer.rollout_rows import failed, row, run_record, said, scored, write_run
from tests.viewer.test_conversation import PIXEL

USAGE = {
    "input_tokens": 30,
    "output_tokens": 5,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens_details": {"reasoning_tokens": 2},
}
TOOL = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}}
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A run with a scored rollout, one that failed twice, one that failed and was scored, and an unresolved one."""
    planned = [row(task, 0, subset="hard") for task in range(4)]
    graded = {"extracted_answer": "4", "reward_components": {"format": 1.0}, "subset": "very hard"}
    first = scored(planned[0], said("4"), reward=0.5, **graded)
    first["response"] |= {"usage": USAGE, "model": "a-model", "tools": [TOOL]}
    again = scored(planned[2], said("late"), _ng_attempt_index=1)
    failures = [
        failed(planned[1], _ng_attempt_index=0, _ng_failure_server="counter", _ng_failure_tier="environment"),
        failed(planned[1], cause="model_failed", _ng_attempt_index=1, _ng_failure_retryable=True),
        failed(planned[2], _ng_attempt_index=0),
    ]
    results = write_run(tmp_path, [first, again], failures, planned)
    (tmp_path / "x_run.json").write_bytes(run_record(command=["ng", "eval", "run", "--config", "a.yaml"]))
    (tmp_path / "x_run" / "logs").mkdir(parents=True)
    (tmp_path / "x_run" / "logs" / "counter.log").write_text("start\n(rollout 1-0) failed\n")
    with Api(results) as api:
        yield api


def open_run(folder: Path, *results: Any) -> Api:
    return Api(write_run(folder, results))


def test_usage_of_chat_completions_is_shown(tmp_path: Path):
    result = scored(row(0, 0), said("4"))
    result["response"]["usage"] = {
        "prompt_tokens": 30,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    with open_run(tmp_path, result) as api:
        found = api.rollout(0)
    assert found["usage"] == {"input_tokens": 30, "output_tokens": 5, "cached_tokens": 10, "reasoning_tokens": 2}


def test_scored_rollout_has_its_result(api: Api):
    found = api.rollout(0)
    assert (found["outcome"], found["reward"], found["agent"], found["model"]) == (
        "scored",
        0.5,
        "an_agent",
        "a-model",
    )
    assert [item["parts"][0]["text"] for item in found["items"]] == ["A question", "4"]
    assert found["usage"] == {"input_tokens": 30, "output_tokens": 5, "cached_tokens": 10, "reasoning_tokens": 2}
    assert found["tools"] == [{"name": "add", "description": "Add.", "parameters": {"type": "object"}}]
    assert (found["given"], found["reward_components"]) == ({"subset": "hard"}, {"format": 1.0})
    assert found["graded"] == {"extracted_answer": "4", "subset": "very hard"}
    assert "ng eval run --config a.yaml" in found["rerun"]
    assert (found["failure"], found["note"], found["omitted"]) == (None, None, 0)


def test_failed_rollout_has_its_attempts_and_log(api: Api):
    last, first = api.rollout(1), api.rollout(1, attempt=0)
    assert (last["outcome"], last["attempt"], last["attempts"], last["reward"]) == ("failed", 1, [0, 1], None)
    assert (last["failure"]["class"], last["failure"]["retryable"]) == ("model_failed", True)
    assert (first["attempt"], first["attempts"]) == (0, [0, 1])
    assert (first["failure"]["class"], first["failure"]["message"]) == ("timeout", "it took too long")
    assert (first["failure"]["server"], first["failure"]["tier"]) == ("counter", "environment")
    log = first["failure"]["log"]
    assert [log["lines"][at] for at in log["marked"]] == ["(rollout 1-0) failed"]
    assert (first["given"], first["graded"]) == ({"subset": "hard"}, {})


def test_why_has_reason_failed_tools_and_end(tmp_path: Path):
    def call(name: str, number: int, output: str) -> list[dict[str, Any]]:
        ids = {"call_id": f"{name}{number}"}
        asked = {"type": "function_call", "name": name, "arguments": "{}", **ids}
        return [asked, {"type": "function_call_output", "output": output, **ids}]

    calls = [*call("add", 0, "Error: no"), *call("add", 1, "Error: no"), *call("sub", 2, "Error: no")]
    cut_off = scored(row(2, 0), said("4 is"), why=["a", "list"])
    cut_off["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
    rows = [
        scored(row(0, 0), *calls, *call("add", 3, "3"), why="3 is expected"),
        scored(row(1, 0), said("3"), why="x" * 1000),
        cut_off,
        scored(row(3, 0, why="the row says so"), said("3")),
        scored(row(4, 0), said("3")),
    ]
    planned = [row(task, 0, **({"why": "the row says so"} if task == 3 else {})) for task in range(6)]
    with Api(write_run(tmp_path, rows, [failed(planned[5])], planned)) as api:
        found = [api.rollout(task)["why"] for task in range(6)]
    assert found == [
        "3 is expected; failed tool calls: add (2×), sub; the rollout ended with a tool call, without an answer",
        f"{'x' * 600}… (400 more characters)",
        "['a', 'list']; the answer was cut off (max_output_tokens)",
        None,
        None,
        "it took too long",
    ]


def test_retried_rollout_keeps_its_failed_attempt(api: Api):
    assert (api.rollout(2)["outcome"], api.rollout(2)["attempts"]) == ("scored", [0, 1])
    assert api.rollout(2, attempt=0)["failure"]["class"] == "timeout"


def test_unresolved_rollout_shows_its_prompt(api: Api):
    found = api.rollout(3)
    assert (found["outcome"], found["given"], found["graded"]) == ("unresolved", {"subset": "hard"}, {})
    assert [item["in_prompt"] for item in found["items"]] == [True]


def test_neighbours_follow_the_filter(api: Api):
    found = api.rollout(2)
    assert (found["previous"], found["next"]) == ({"task": 1, "repeat": 0}, {"task": 3, "repeat": 0})
    found = api.rollout(2, outcome="scored", order="desc")
    assert (found["previous"], found["next"]) == (None, {"task": 0, "repeat": 0})
    found = api.rollout(2, **{"filter.task": [0, 2]})
    assert (found["previous"], found["next"]) == ({"task": 0, "repeat": 0}, None)


@pytest.mark.parametrize(
    ("status", "path", "parameters"),
    [
        (404, "rollout", {"task": 9, "repeat": 0}),
        (404, "rollout", {"task": 0, "repeat": 0, "attempt": 7}),
        (404, "rollout", {"task": 0, "repeat": 0, "run": "nowhere"}),
        (400, "rollout", {"task": -1, "repeat": 0}),
        (400, "rollout", {"task": 0, "repeat": 0, "order": "sideways"}),
        (400, "rollout", {"task": 0, "repeat": 0, "from": -1}),
        (404, "task", {"task": 9}),
        (404, "tokens", {"task": 9, "repeat": 0}),
        (404, "media", {"task": 0, "repeat": 0, "n": 0}),
        (400, "media", {"task": 0, "repeat": 0}),
        (400, "compare", {}),
    ],
)
def test_bad_requests_are_explained(api: Api, status: int, path: str, parameters: dict[str, Any]):
    assert len(api.get(path, status, **parameters)["detail"]) > 10


def test_raw_record_is_the_line(api: Api):
    response = api.client.get("/api/raw", params={"run": api.run, "task": 2, "repeat": 0})
    line = api.library.runs()[0].files.results.read_bytes().splitlines()[1]
    assert (response.content, response.headers["content-type"]) == (line, "application/json")


def test_removed_files_are_named(api: Api):
    run = api.library.runs()[0]
    api.rollout(0)
    place = place_of(run, TaskKey(0, 0))
    place.path.unlink()
    with pytest.raises(DataError, match=r"x\.jsonl: cannot be read \(No such file"):
        raw(Asked(run, place))


def test_all_repeats_of_a_task_are_shown(tmp_path: Path):
    results = [scored(row(0, repeat), said(str(repeat)), reward=repeat) for repeat in range(20)]
    with open_run(tmp_path, *results) as api:
        found = api.get("task", task=0)
    assert [each["repeat"] for each in found["repeats"]] == list(range(16))
    assert [each["reward"] for each in found["all"]] == list(range(20))
    assert (found["repeats"][3]["items"][-1]["parts"][0]["text"], found["title"]) == ("3", "A question")


def test_large_repeat_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rollout, "LARGEST_RECORD", 5_000)
    results = [scored(row(0, repeat), said("x" * (10_000 if repeat == 1 else 10))) for repeat in range(3)]
    with open_run(tmp_path, *results) as api:
        found = api.get("task", task=0)
        problem = api.get("rollout", 409, task=0, repeat=1)["detail"]
    assert [each["repeat"] for each in found["repeats"]] == [0, 2]
    assert [each["repeat"] for each in found["all"]] == [0, 1, 2]
    assert "x.jsonl:2: the record has" in problem


def test_media_are_served_with_their_own_type(tmp_path: Path):
    prompt = [{"role": "user", "content": [{"type": "input_text", "text": "Look"}, IMAGE]}]
    with open_run(tmp_path, scored(row(prompt=prompt), said("A dot"))) as api:
        source = api.rollout()["items"][0]["parts"][1]["source"]
        response = api.client.get(source)
    assert response.content.startswith(b"\x89PNG")
    assert (response.headers["content-type"], response.headers["x-content-type-options"]) == ("image/png", "nosniff")


def test_large_rollouts_are_sent_in_parts(tmp_path: Path):
    replies = 0
    texts: list[str] = []
    with open_run(tmp_path, scored(row(), *(said(f"{number} {'x' * 50_000}") for number in range(100)))) as api:
        while len(texts) < 101:
            found = api.rollout(**{"from": len(texts)})
            replies += 1
            assert len(dump_line(found)) < 2_100_000
            texts += [item["parts"][0]["text"].partition(" ")[0] for item in found["items"]]
            assert len(texts) + found["omitted"] == 101
    assert (texts, replies) == (["A", *map(str, range(100))], 3)


def test_huge_record_has_a_small_page(tmp_path: Path):
    huge = "x" * 30_000_000
    deep: Any = "end"
    for _ in range(240):
        deep = [deep]
    many = {f"field {number}": "y" * 50_000 for number in range(100)}
    record = scored(row(prompt=huge), said(huge), huge=huge, deep=deep, **many)
    with open_run(tmp_path, record) as api:
        response = api.client.get("/api/rollout", params={"run": api.run, "task": 0, "repeat": 0})
        assert (response.status_code, len(response.content) < 3_000_000) == (200, True)
        found = response.json()
        assert found["items"][1]["parts"][0]["omitted"] > 29_000_000
        assert "nested too deeply" in found["graded"]["deep"]
        response = api.client.get("/api/raw", params={"run": api.run, "task": 0, "repeat": 0})
        assert len(response.content) > 90_000_000


def test_rewritten_files_are_no_server_errors(api: Api):
    api.rollout(0)
    results = api.library.runs()[0].files.results
    results.write_bytes(b'{"torn": ')
    response = api.client.get("/api/rollout", params={"run": api.run, "task": 0, "repeat": 0})
    assert response.status_code in (200, 404, 409)


@pytest.mark.parametrize(
    "fields",
    [
        {"responses_create_params": 5, "response": "x", "instance_config": 5, "reward_components": []},
        {"responses_create_params": {"tools": [5, {"function": 5}]}, "response": {"usage": {"input_tokens": "x"}}},
        {"response": {"usage": {"input_tokens_details": 5}, "model": {"a": 1}, "tools": "x"}, "mask_sample": "yes"},
        {"reward_components": {"a": "x", "b": True}, "judge_evaluations": 5, "criteria": {}, "ng_trajectory": 5},
        {"_ng_media_dir": 5, "_ng_rollout_id": {"a": 1}, "failure_reason": 5, "policy_version": [1]},
    ],
)
def test_hostile_records_are_shown(tmp_path: Path, fields: dict[str, Any]):
    with open_run(tmp_path, {**scored(row(), said("4")), **fields}) as api:
        api.rollout()
        api.get("tokens", task=0, repeat=0)
        api.get("task", task=0)


@pytest.mark.parametrize("name", ["server", "message", "log", "rollout_id"])
def test_hostile_failures_are_shown(tmp_path: Path, name: str):
    key = "_ng_rollout_id" if name == "rollout_id" else f"_ng_failure_{name}"
    results = write_run(tmp_path, [], [failed(row(), **{key: value}) for value in (5, "\0", ["x"], {"a": 1})])
    (tmp_path / "x_run" / "logs").mkdir(parents=True)
    with Api(results) as api:
        assert api.rollout()["outcome"] == "failed"


def test_written_notes_are_shown(api: Api):
    note = {"run": api.run, "task": 0, "repeat": 0, "star": True, "tags": [" odd "], "comment": "Look at this."}
    written = api.client.post("/api/notes", json=note).json()
    assert (written["star"], written["tags"], written["comment"]) == (True, ["odd"], "Look at this.")
    assert api.get("notes") == [written] == [api.rollout(0)["note"]]
    [line] = read_rows(api.library.runs()[0].files.results.with_name("x_notes.jsonl"))
    assert line == written


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (404, {"task": 77}),
        (404, {"run": "nowhere"}),
        (400, {"tags": ["x" * 100]}),
        (400, {"comment": "x" * 30_000}),
        (400, {"task": "one"}),
        (400, {"colour": "red"}),
    ],
)
def test_bad_notes_are_refused(api: Api, status: int, fields: dict[str, Any]):
    response = api.client.post("/api/notes", json={"run": api.run, "task": 0, "repeat": 0, **fields})
    assert (response.status_code, len(response.json()["detail"]) > 10) == (status, True)
    assert api.get("notes") == []


def test_appended_rollouts_are_found(api: Api):
    results = api.library.runs()[0].files.results
    with results.open("ab") as file:
        file.write(dump_line(scored(row(3, 0), said("late"))))
    assert api.rollout(3)["outcome"] == "scored"
