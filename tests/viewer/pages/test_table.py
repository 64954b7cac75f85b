"""Tests of the table of rollouts: its order, its columns, its keys, and the selection that it saves."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.viewer.pages.table import count_of, counted, selected, shown

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

COLUMNS = {
    "task": "Task", "outcome": "Outcome", "reward": "Reward", "steps": "Steps", "tool_calls": "Tools",
    "input_tokens": "Tokens in", "output_tokens": "Tokens out", "seconds": "Duration", "agent": "Agent",
    "failure": "Failure", "attempts": "Attempts", "bytes": "Size",
}  # fmt: skip

SCROLL = "(share) => { const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight * share }"
REACHED = """(share) => {
    const grid = document.querySelector(".grid");
    return Math.abs(grid.scrollTop / grid.scrollHeight - share) < 0.2;
}"""


@pytest.fixture
def table(site, page):
    """The table of the run with all environments."""
    site.open(page, "all", "rollouts")
    expect(count_of(page)).to_have_text(counted(len(site.rollouts("all"))))
    return page


def is_ordered(values):
    """Whether values are in ascending order, apart from missing ones at the end."""
    known = [value for value in values if value is not None]
    return known == sorted(known) and values[: len(known)] == known


@pytest.mark.parametrize(("name", "field"), [("all", "grader"), ("deep/failures", "number")])
def test_every_column_sorts_both_ways(site, page, name, field):
    columns = "&".join(f"column={key}" for key in (*COLUMNS, field))
    site.open(page, name, "rollouts", columns)
    rows = site.get("rollouts", run=site.run(name), limit=1000, column=field)["rows"]
    by_key = {(row["task"], row["repeat"]): row | row["fields"] for row in rows}
    for key, label in (COLUMNS | {field: field}).items():
        header = page.get_by_role("columnheader", name=label, exact=True)
        for _ in range(2):
            before = page.url
            header.get_by_role("button").click()
            expect(page).not_to_have_url(before)
            expect(page.locator("[role=grid]")).to_have_attribute("aria-busy", "false")
            values = [by_key[each].get(key) for each in shown(page)]
            descending = header.get_attribute("aria-sort") == "descending"
            if key == "outcome":
                continue
            known = [value for value in values if value is not None]
            assert is_ordered(known[::-1] if descending else known), (key, values)
        expect(header).to_have_attribute("aria-sort", re.compile("ascending|descending"))


def test_chosen_columns_are_kept_in_the_address(table):
    header = table.get_by_role("columnheader", name="grader", exact=True)
    table.get_by_role("button", name="Columns").click()
    table.get_by_role("textbox", name="Find a column").fill("grader")
    table.get_by_role("button", name="grader").click()
    expect(header).to_be_visible()
    table.keyboard.press("Escape")
    expect(table.locator("#row-0")).to_contain_text("exact")
    table.reload()
    expect(header).to_be_visible()
    table.get_by_role("button", name="Columns").click()
    table.get_by_role("button", name="Show the usual columns").click()
    expect(header).to_have_count(0)


def test_keys_move_through_the_table(site, table):
    last = len(site.rollouts("all")) - 1
    for key, row in [
        ("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0), ("PageDown", 20), ("End", last),
        ("j", last), ("PageUp", last - 20), ("Home", 0),
    ]:  # fmt: skip
        table.keyboard.press(key)
        expect(selected(table)).to_have_attribute("id", f"row-{row}")
        expect(selected(table)).to_be_in_viewport()
    table.keyboard.press("j")
    table.keyboard.press("Enter")
    # The keys of a rollout's page work as soon as it is loaded.
    expect(table.get_by_role("heading", name="Task 0 · repeat 1")).to_be_visible()
    table.keyboard.press("j")
    expect(table.get_by_role("heading", name="Task 1 · repeat 0")).to_be_visible()
    table.keyboard.press("k")
    expect(table.get_by_role("heading", name="Task 0 · repeat 1")).to_be_visible()
    table.keyboard.press("Escape")
    expect(selected(table)).to_have_attribute("id", "row-1")


def test_slash_searches_and_question_mark_helps(table):
    table.keyboard.press("/")
    words = table.get_by_role("searchbox", name="Words in the conversation")
    expect(words).to_be_focused()
    # Keys that are typed into a field do nothing else.
    table.keyboard.type("j?")
    expect(words).to_have_value("j?")
    expect(selected(table)).to_have_count(0)
    table.keyboard.press("Escape")
    table.keyboard.press("?")
    help_text = table.get_by_role("dialog", name="Keys")
    for label in ("Next rollout", "Open the rollout", "Search in the conversations", "Add or remove a star"):
        expect(help_text).to_contain_text(label)
    table.keyboard.press("Escape")
    expect(help_text).to_have_count(0)


def test_long_table_scrolls_to_every_row(site, table):
    keys = sorted(site.rollouts("all"))
    for share in (0.3, 0.6, 1.0, 0.0):
        table.evaluate(SCROLL, share)
        table.wait_for_function(REACHED, arg=share)
        in_sight = shown(table)
        assert in_sight == keys[keys.index(in_sight[0]) :][: len(in_sight)]
    # The rows are drawn some time after the scroll position has changed.
    expect(table.locator("#row-0")).to_be_in_viewport()
    assert shown(table)[0] == keys[0]


def test_download_has_the_lines_of_the_filter(site, page, shared_workplace):
    site.open(page, "deep/failures", "rollouts", "outcome=scored&outcome=failed&repeat=1")
    expect(count_of(page)).to_have_text(counted(len(site.rollouts("deep/failures")) // 2))
    page.get_by_role("button", name="Save the selected rollouts").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download failures_selection.jsonl").click()
    lines = download.value.path().read_bytes().splitlines()
    results = site.folder / "deep" / "failures.jsonl"
    written = results.read_bytes() + results.with_name("failures_failures.jsonl").read_bytes()
    assert len(lines) == len(set(lines)) == len(site.rollouts("deep/failures")) // 2
    assert set(lines) <= set(written.splitlines())
    # The command next to it selects the same.
    command = shlex.split(page.locator(".selection code").inner_text())
    assert command[:2] == ["ng", "view"]
    finished = shared_workplace.run("ng", *command[1:])
    assert finished.code == 0, finished.err
    assert (shared_workplace.folder / "failures_selection.jsonl").read_bytes().splitlines() == lines
