"""Tests of pages about runs that a test writes itself, so that each has exactly what the test is about."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.viewer.index_rows import planned, scored, write
from tests.viewer.pages.table import count_of, counted
from tests.viewer.small_run import write_record, write_run

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

REPEATS = 80
LONG_NAME = f"an_agent_with_a_{'very_' * 30}long_name"
WIDTH_OF_PAGE = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def site(open_site, tmp_path_factory):
    """A viewer of a small run, one whose agent has a long name, one of many repeats, and one that goes on."""
    folder = tmp_path_factory.mktemp("written")
    write_run(folder)
    agent = {"type": "responses_api_agents", "name": LONG_NAME}
    write(folder / "long.jsonl", *(scored(task) | {"agent_ref": agent} for task in (0, 1)))
    write_record(folder / "long.jsonl", state="finished", command=["ng", "eval", *["--option=value"] * 90])
    keys = [(task, repeat) for task in (0, 1) for repeat in range(REPEATS)]
    write(folder / "many_materialized_inputs.jsonl", *(planned(*key) for key in keys))
    write(folder / "many.jsonl", *(scored(*key) for key in keys))
    write(folder / "tasks.jsonl", *(scored(task, at, at * (task % 2)) for task in range(250) for at in (0, 1)))
    going = write(folder / "going.jsonl", scored(0))
    with going.open("ab") as file:
        file.write(b'{"the line that is being written')
    write_record(going)
    return open_site(folder)


def query_of(page):
    return parse_qsl(urlsplit(page.url).fragment.partition("?")[2])


def test_escape_empties_the_search_and_its_filter(site, page):
    site.open(page, "small", "rollouts", "words=red dot")
    expect(count_of(page)).to_have_text(counted(1))
    field = page.get_by_role("searchbox", name="Words in the conversation")
    field.press("Escape")
    expect(field).to_have_value("")
    expect(field).not_to_be_focused()
    expect(count_of(page)).to_have_text(counted(4))
    assert query_of(page) == []


def test_escape_empties_the_search_in_a_rollout(site, page):
    site.open(page, "small", "rollout/1/0")
    field = page.get_by_role("searchbox", name="Find in this rollout")
    field.fill("red")
    found = page.locator(".find-search [role=status]")
    expect(found).to_have_text("1 found")
    field.press("Escape")
    expect(field).to_have_value("")
    expect(found).to_have_count(0)
    expect(page.get_by_role("heading", name="Task 1 · repeat 0")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 400])
def test_long_command_and_names_stay_within_the_window(site, open_page, width):
    page = open_page(site, width=width)
    page.goto(site.origin)
    page.get_by_role("button", name="Settings of long").click()
    expect(page.get_by_text("--option=value")).to_be_visible()
    assert page.locator("table.runs").bounding_box()["width"] <= width
    assert page.evaluate(WIDTH_OF_PAGE) <= width
    for path, query in (("overview", ""), ("rollouts", f"agent={LONG_NAME}"), ("rollout/0/0", "")):
        site.open(page, "long", path, query)
        expect(page.get_by_text(LONG_NAME).first).to_be_attached()
        assert page.evaluate(WIDTH_OF_PAGE) <= width, path


def test_heat_map_says_which_repeats_it_shows(site, page):
    legend = page.locator(".heat-legend")
    site.open(page, "many", "overview")
    expect(legend).to_contain_text(f"2 of {REPEATS} repeats in a square")
    site.open(page, "small", "overview")
    expect(legend).to_contain_text("repeats down")
    expect(legend).not_to_contain_text("in a square")


def test_kinds_and_order_of_tasks_are_kept_in_the_address(site, page):
    site.open(page, "tasks", "overview")
    page.get_by_role("link", name="Show tasks").click()
    expect(page.get_by_role("heading", name="250 tasks")).to_be_visible()
    page.get_by_role("button", name="Never solved 125").click()
    tasks = page.get_by_role("region", name="Tasks", exact=True)
    expect(tasks.get_by_role("link").first).to_have_text("0")
    page.get_by_role("button", name="Mixed 125").click()
    expect(tasks.get_by_role("link").first).to_have_text("1")
    expect(tasks.get_by_role("row").nth(1)).to_contain_text("1 of 2")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("101 to 125 of 125")).to_be_visible()
    tasks.get_by_role("button", name="Mean reward").click()
    expect(page.get_by_text("1 to 100 of 125")).to_be_visible()
    assert query_of(page) == [("kind", "mixed"), ("by", "-mean")]
    page.reload()
    expect(tasks.get_by_role("columnheader", name="Mean reward")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Mixed 125").click()
    assert query_of(page) == [("by", "-mean")]
    tasks.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", name="Task 1", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("outcom=failed", "“outcom” is not a filter. Did you mean “outcome”?"),
        ("outcome=faild", "outcome=faild: this must be one of scored, failed, unresolved."),
        ("task=first", "task=first: this must be a whole number."),
        ("reward_min=high", "reward_min=high: this must be a number."),
        ("star=yes", "star=yes: this must be true."),
    ],
)
@pytest.mark.parametrize("path", ["rollouts", "overview", "tasks"])
def test_misspelled_filter_is_rejected(site, page, path, query, problem):
    site.open(page, "small", path, f"{query}&repeat=1")
    expect(page.get_by_role("alert")).to_contain_text(problem)
    expect(page.get_by_text(counted(2))).to_have_count(0)
    page.get_by_role("button", name="Leave it out").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert query_of(page) == [("repeat", "1")]


def test_line_that_is_being_written_is_no_reading(site, page):
    # With an old record, the run would count as killed.
    write_record(site.folder / "going.jsonl")
    page.goto(site.origin)
    row = page.get_by_role("row", name="going")
    expect(row).to_contain_text("running")
    # All that can be read is read, so that the row keeps its height.
    expect(row).to_contain_text("1 of 4")
    expect(row).not_to_contain_text("Reading")


def test_browser_without_session_gets_a_readable_page(site, browser):
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(site.origin)
    sentence = page.get_by_text("This browser is not connected")
    expect(sentence).to_be_visible()
    assert "sans-serif" in sentence.evaluate("each => getComputedStyle(each).fontFamily")
    assert page.evaluate(WIDTH_OF_PAGE) <= 400
    context.close()
