"""A report, whose page filters and sorts by itself, selects the same rollouts as the server."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from nemo_gym.viewer.report import write_report
from nemo_gym.viewer.selection import Selection
from tests.viewer.browser import browser, needs_browser
from tests.viewer.rollout_api import Api
from tests.viewer.rollout_rows import failed, row, said, scored, write_run

CALL = {"type": "function_call", "name": "search", "call_id": "c", "arguments": '{"for": "Zürich"}'}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "nothing\nfound"}

PLANNED = [
    row(task, repeat, f"Question {task}", level=task / 2, is_hard=task > 1, subset={"name": "ab"[task % 2]})
    for task in range(4)
    for repeat in range(3)
]
SCORED = [
    scored(PLANNED[0], said("Yes."), reward=0.0, reward_components={"form": 1}),
    scored(PLANNED[1], CALL, RESULT, said("ÜBER"), reward=0.5, reward_components={"form": 0.5}),
    scored(PLANNED[2], said("No."), reward=1.0, verdict="yes"),
    scored(PLANNED[3], CALL, RESULT, CALL, RESULT, said('a "quoted" \\ answer'), reward=-1.0, verdict="no"),
    scored(PLANNED[5], said("No."), reward=0.5, verdict=None),
    scored(PLANNED[9], said("Yes."), reward=1.0),
    scored(PLANNED[10], CALL, {**RESULT, "output": "Error: no network"}, said("No."), reward=0.0),
]
FAILED = [
    failed(PLANNED[4], _ng_failure_server="judge", _ng_failure_tier="judge"),
    failed(PLANNED[8], "bug", _ng_failure_server="search", _ng_failure_tier="environment"),
]
NOTES = [
    {"task": 0, "repeat": 1, "star": True, "tags": ["odd", "long"], "comment": "Look."},
    {"task": 1, "repeat": 2, "star": False, "tags": ["odd"], "comment": ""},
]

FILTERS = [
    "task=1&task=2", "repeat=0", "agent=an_agent", "agent=another", "outcome=failed&outcome=unresolved",
    "failure=timeout", "tier=environment", "server=judge&server=search", "tool=search", "tool=lookup",
    "tool_failed=true", "tool_failed=true&tool=search", "tool_failed=true&tool=lookup",
    "reward_min=0.5", "reward_max=0.5", "reward_min=0&reward_max=0.5", "steps_min=2", "steps_max=1",
    "words=über", "words=zürich", 'words="QUOTED" \\', "words=nothing\nfound", "words=question 2", "words=absent",
    "field=level=1", "field=level=1.0", "field=level=x", "field=is_hard=true", "field=is_hard=false",
    "field=subset.name=a", "field=subset.name=a&field=subset.name=b", "field=subset.name=a&field=verdict=yes",
    "field=reward_components.form=1", "field=absent=1", "star=true", "tag=odd", "tag=long&tag=absent",
    "commented=true", "outcome=scored&task=0&reward_min=0.4",
]  # fmt: skip
SORTS = [
    "task", "agent", "outcome", "reward", "failure", "attempts", "steps", "tool_calls", "input_tokens", "seconds",
    "level", "is_hard", "subset.name", "verdict", "reward_components.form",
]  # fmt: skip
TASKS = ["", "kind=mixed", "kind=never", "kind=always", "outcome=scored", "by=-task"] + [
    f"by={sign}{name}" for name in ("solved", "mean", "std", "seconds", "failed") for sign in ("", "-")
]
TASKS_SHOWN = """() => [...document.querySelectorAll(".tasks-kinds strong, .tasks tbody tr td:nth-child(-n+4)")]
    .map((each) => each.textContent).join(" ")"""
SHOWN = """() => [...document.querySelectorAll("[role=row]")].flatMap(
    (row) => /(\\d+) ?: ?(\\d+)/.exec(row.innerText)?.slice(1).join(":") ?? []).join(" ")"""


@pytest.mark.slow
@needs_browser
def test_report_selects_what_the_server_selects(tmp_path):
    from playwright.sync_api import TimeoutError

    with Api(write_run(tmp_path, SCORED, FAILED, PLANNED)) as api:
        for note in NOTES:
            assert api.client.post("/api/notes", json={"run": api.run, **note}).status_code == 200
        write_report(api.library, Selection.parse(""), tmp_path / "report.html")
        queries = [*FILTERS, *(f"sort={name}&order={order}" for name in SORTS for order in ("asc", "desc"))]
        expected = {query: _keys_from(api, query) for query in queries}
        of_tasks = {query: _tasks_from(api, query) for query in TASKS}
    address = f"{(tmp_path / 'report.html').as_uri()}#/run/{api.run}"
    wrong = []
    with browser() as started:
        page = started.new_page()
        for path, shown, cases in (("rollouts", SHOWN, expected), ("tasks", TASKS_SHOWN, of_tasks)):
            for query, text in cases.items():
                page.goto(f"{address}/{path}?{urlencode(_pairs(query))}")
                try:
                    page.wait_for_function(f"expected => ({shown})() === expected", arg=text, timeout=20_000)
                except TimeoutError:
                    wrong.append((path, query, text, page.evaluate(shown)))
    assert wrong == []


def _keys_from(api: Api, query: str) -> str:
    reply = api.client.get("/api/rollouts", params=[("run", api.run), *_pairs(query)])
    assert reply.status_code == 200, reply.text
    return " ".join(f"{each['task']}:{each['repeat']}" for each in reply.json()["rows"])


def _tasks_from(api: Api, query: str) -> str:
    """Return the counts of the kinds, and of each task its number, its solved rollouts, its mean and its deviation."""
    by, pairs = "task", [("run", api.run)]
    for name, value in _pairs(query):
        by = value if name == "by" else by
        pairs += [] if name == "by" else [(name, value)]
    order = "desc" if by.startswith("-") else "asc"
    reply = api.client.get("/api/tasks", params=[*pairs, ("sort", by.removeprefix("-")), ("order", order)]).json()
    rows = [
        f"{row['task']} {row['solved']} of {row['scored']} {_shown(row['mean'])} {_number(row['std'])}"
        for row in reply["rows"]
    ]
    return " ".join([*(str(reply["counts"][kind]) for kind in ("never", "mixed", "always")), *rows])


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 3):g}"


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)]
