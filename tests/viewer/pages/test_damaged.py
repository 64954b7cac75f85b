"""Tests of files that are torn, foreign, empty, huge or changing: reported, never a blank page or an error 500."""

from __future__ import annotations

import re

import orjson
import pytest

from tests.viewer.pages.table import count_of, counted

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

HUGE = 200_000_000
TOO_MANY_VALUES = "," * 20_000_001


def rollout(task=0, text="Hello.", **fields):
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
    prompt = {"input": [{"role": "user", "content": "Say hello."}]}
    return {
        "responses_create_params": prompt, "response": {"output": output}, "reward": 1.0, "_ng_task_index": task,
        "_ng_rollout_index": 0, "agent_ref": {"name": "agent"}, **fields,
    }  # fmt: skip


def lines(*rows):
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


@pytest.fixture(scope="module")
def damaged(open_site, tmp_path_factory):
    """A viewer of a folder of damaged results."""
    folder = tmp_path_factory.mktemp("damaged")
    good = lines(rollout(0), rollout(1))
    files = {
        "torn": good + b'{"_ng_task_index": 2, "rew\n\xff\xfe\x00 not UTF-8\n' + lines(rollout(3)) + good[:50],
        "foreign": lines({"word": 1}, ["a", "list"], "text", 3, None) * 3,
        "empty": b"",
        "binary": bytes(range(256)) * 100,
        "wrong": lines(
            rollout(reward="high"), rollout(response=[]), rollout(_ng_task_index="first"), rollout(agent_ref=7),
            rollout(response={"output": [{"type": 5}, "x", None]}, responses_create_params=3),
        ),
        "rewritten": good,
        "crowded": lines(*(rollout(_ng_rollout_index=n, x=TOO_MANY_VALUES if n == 1 else n) for n in range(3))),
    }  # fmt: skip
    for name, content in files.items():
        (folder / f"{name}.jsonl").write_bytes(content)
        # The record makes it a run, even if no line is a rollout.
        (folder / f"{name}_run.json").write_bytes(b"{" if name == "torn" else b"{}")
    with (folder / "huge.jsonl").open("wb") as file:
        head, tail = orjson.dumps(rollout(0, "MARK")).split(b"MARK")
        file.write(head)
        for _ in range(HUGE // 1_000_000):
            file.write(b"x" * 1_000_000)
        file.write(tail + b"\n" + lines(rollout(1)))
    (folder / "other.jsonl").write_bytes(lines({"word": 1}))
    return open_site(folder)


@pytest.fixture
def page(damaged, open_page):
    return open_page(damaged)


def is_shown(page):
    """Wait until the page shows something, and is not only loading."""
    expect(page.locator("main")).to_have_text(re.compile(r"\w{3}"))
    expect(page.locator("main .spinner")).to_have_count(0)


def test_every_page_of_damaged_runs_shows_something(damaged, page):
    page.watch.expected_statuses = {400, 404, 409}
    names = sorted(run["name"] for run in damaged.get("runs")["runs"])
    assert names == ["binary", "crowded", "empty", "foreign", "huge", "rewritten", "torn", "wrong"]
    for name in names:
        for path in ("overview", "rollouts", "rollout/0/0", "task/0", "live"):
            damaged.open(page, name, path)
            is_shown(page)
            expect(page.get_by_text("The viewer failed")).to_have_count(0)
            expect(page.get_by_text("This page cannot be shown")).to_have_count(0)


def test_lines_that_are_not_rollouts_are_reported(damaged, page):
    page.goto(damaged.origin)
    for name in ("torn", "foreign", "binary", "wrong"):
        page.get_by_role("button", name=f"Settings of {name}").click()
        expect(page.locator(".runs-details .problems")).to_contain_text(f"{name}.jsonl")
        page.get_by_role("button", name=f"Settings of {name}").click()
        expect(page.locator(".runs-details")).to_have_count(0)
    page.get_by_role("button", name="Settings of torn").click()
    problems = page.locator(".runs-details .problems")
    problems.locator("summary").click() if problems.get_attribute("open") is None else None
    for line in (3, 4):
        expect(problems).to_contain_text(f"torn.jsonl:{line}")
    damaged.open(page, "torn", "rollouts")
    expect(count_of(page)).to_have_text(counted(3))


def test_line_of_200_megabytes_does_not_stop_the_page(damaged, page):
    page.watch.expected_statuses = {409}
    damaged.open(page, "huge", "rollouts")
    expect(count_of(page)).to_have_text(counted(2))
    page.get_by_role("link", name="1 : 0").click()
    expect(page.get_by_role("main")).to_contain_text("Hello.")
    page.get_by_role("link", name="Previous").click()
    expect(page.get_by_role("main")).to_contain_text(re.compile("xxxx|too large|too long|200"))
    is_shown(page)


def test_crowded_repeat_does_not_hide_the_others(damaged, page):
    page.watch.expected_statuses = {409}
    damaged.open(page, "crowded", "task/0", "show=0,1,2")
    expect(page.get_by_role("columnheader")).to_have_count(2)
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"^Repeat 1: .*crowded\.jsonl:2: the record"))


def test_rewritten_file_is_read_again(damaged, page):
    results = damaged.folder / "rewritten.jsonl"
    damaged.open(page, "rewritten", "rollouts")
    expect(count_of(page)).to_have_text(counted(2))
    # As a program that writes in place: first nothing, then a part, then everything.
    for content, number in ((b"", 0), (lines(rollout(5))[:-9], None), (lines(rollout(5), rollout(6), rollout(7)), 3)):
        results.write_bytes(content)
        page.reload()
        is_shown(page)
        if number is not None:
            expect(count_of(page)).to_have_text(counted(number))
    page.get_by_role("link", name="6 : 0").click()
    expect(page.get_by_role("main")).to_contain_text("Hello.")
    results.unlink()
    (damaged.folder / "rewritten_run.json").unlink()
    page.watch.expected_statuses = {404, 409}
    page.reload()
    expect(page.get_by_role("alert").first).to_contain_text(re.compile("does not exist|has no rollout"))
