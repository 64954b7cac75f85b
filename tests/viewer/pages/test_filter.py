"""Tests of the filter: each part by its address and by its widget, against the rollouts in the files."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.viewer.pages.table import count_of, counted, shown

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

NOTED = {"star": True, "tags": ["odd"], "comment": "Look at this."}
AGENT = "mcqa_simple_agent"


def calls(row):
    return [item["name"] for item in row["response"]["output"] if item["type"] == "function_call"]


def steps(row):
    """The model's turns: its messages and calls between two inputs."""
    is_model = [
        not item["type"].endswith("_output") and item.get("role") not in ("user", "system", "developer")
        for item in row["response"]["output"]
    ]
    return sum(now and not before for before, now in pairwise([False, *is_model]))


# The run, the filter in the address, the way to it in the menu, and the rollouts that it selects.
CASES = {
    "agent": ("all", f"agent={AGENT}", ["Agent", AGENT], lambda row: row["agent_ref"]["name"] == AGENT),
    "task": ("all", "task=3&task=60", ["Task", "3 60"], lambda row: row["_ng_task_index"] in (3, 60)),
    "repeat": ("all", "repeat=1", ["Repeat", "1"], lambda row: row["_ng_rollout_index"] == 1),
    "reward_min": ("all", "reward_min=0.5", ["Reward", "0.5", ""], lambda row: row["reward"] >= 0.5),
    "reward_max": ("all", "reward_max=-1", ["Reward", "", "-1"], lambda row: row["reward"] <= -1),
    "steps_min": ("all", "steps_min=4", ["Steps", "4", ""], lambda row: steps(row) >= 4),
    "steps_max": ("all", "steps_max=1", ["Steps", "", "1"], lambda row: steps(row) <= 1),
    "tool": ("all", "tool=zoom", ["Tool used", "zoom"], lambda row: "zoom" in calls(row)),
    "field": ("all", "field=grader=exact", ["grader", "exact"], lambda row: row.get("grader") == "exact"),
    "outcome": ("deep/failures", "outcome=scored", ["Outcome", "scored"], lambda row: "reward" in row),
    "failure": (
        "deep/failures", "failure=timeout", ["Failure", "timeout"],
        lambda row: row.get("_ng_failure_class") == "timeout",
    ),
    "tier": (
        "deep/failures", "tier=environment", ["Tier of the failure", "environment"],
        lambda row: row.get("_ng_failure_tier") == "environment",
    ),
    "server": (
        "deep/failures", "server=policy_model", ["Server of the failure", "policy_model"],
        lambda row: row.get("_ng_failure_server") == "policy_model",
    ),
    "star": ("tokens", "star=true", ["Starred"], lambda row: row["_ng_task_index"] == 2),
    "tag": ("tokens", "tag=odd", ["Tag", "odd"], lambda row: row["_ng_task_index"] == 2),
    "commented": ("tokens", "commented=true", ["With a comment"], lambda row: row["_ng_task_index"] == 2),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def noted(site):
    for repeat in (0, 1):
        site.note("tokens", (2, repeat), **NOTED)


def expected(site, name, chooses):
    return sorted(key for key, row in site.rollouts(name).items() if chooses(row))


def query_of(page):
    return parse_qsl(urlsplit(page.url).fragment.partition("?")[2])


@pytest.mark.parametrize("case", CASES)
def test_address_selects_rollouts(site, page, case):
    name, query, _, chooses = CASES[case]
    keys = expected(site, name, chooses)
    assert 0 < len(keys) < len(site.rollouts(name))
    site.open(page, name, "rollouts", query)
    expect(count_of(page)).to_have_text(counted(len(keys)))
    in_sight = shown(page)
    assert in_sight == keys[: len(in_sight)]


@pytest.mark.parametrize("case", CASES)
def test_widget_writes_the_address(site, page, case):
    name, query, (label, *values), chooses = CASES[case]
    site.open(page, name, "rollouts")
    everything = counted(len(site.rollouts(name)))
    expect(count_of(page)).to_have_text(everything)
    page.get_by_role("button", name="+ Filter").click()
    panel = page.locator(".filter-panel")
    panel.get_by_role("textbox", name="Find a filter or field").fill(label)
    panel.get_by_role("button", name=re.compile(f"^{label}")).first.click()
    if len(values) == 2:
        for field, value in zip(("from", "to"), values, strict=True):
            panel.get_by_role("textbox", name=f"{label} {field}").fill(value)
    elif case in ("task", "repeat"):
        panel.get_by_role("textbox").fill(values[0])
    elif values:
        panel.get_by_role("button", name=re.compile(f"^(✓ ?)?{values[0]}")).first.click()
    expect(count_of(page)).to_have_text(counted(len(expected(site, name, chooses))))
    assert query_of(page) == parse_qsl(query)
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Remove ")).click()
    expect(count_of(page)).to_have_text(everything)
    assert query_of(page) == []


def test_words_are_searched_in_conversations(site, page):
    site.open(page, "all", "rollouts")
    page.get_by_role("searchbox", name="Words in the conversation").fill("BICYCLE bell")
    keys = expected(site, "all", lambda row: "bicycle bell" in str(row["responses_create_params"]).lower())
    assert keys
    expect(count_of(page)).to_have_text(counted(len(keys)))
    assert query_of(page) == [("words", "BICYCLE bell")]
    page.get_by_role("link", name="{} : {}".format(*keys[0]), exact=True).click()
    # The words are also found within the rollout.
    expect(page.get_by_role("searchbox", name="Find in this rollout")).to_have_value("BICYCLE bell")
    expect(page.locator(".find-search [role=status]")).to_have_text(re.compile("^[1-9]"))


def test_letters_with_long_lower_case_hide_no_hit(site, page):
    site.open(page, "all", "rollout/0/0", "words=zebra")
    expect(page.locator(".find-search [role=status]")).to_have_text("0 found")
    page.locator(".conversation").first.evaluate("each => each.append('\u0130\u0130\u0130\u0130 ZEBRA')")
    expect(page.locator(".find-search [role=status]")).to_have_text("1 found")
    marked = page.evaluate("[...CSS.highlights.get('found')].map(String)")
    assert marked == ["ZEBRA"]


def test_parts_of_a_filter_must_all_hold(site, page):
    tasks = sorted({task for (task, _), row in site.rollouts("all").items() if row["agent_ref"]["name"] == AGENT})
    query = f"agent={AGENT}&agent=answer_match_simple_agent&repeat=1&task={tasks[0]}&task={tasks[1]}&task=0"
    site.open(page, "all", "rollouts", query)
    expect(count_of(page)).to_have_text(counted(3))
    page.get_by_role("button", name="Clear").click()
    expect(count_of(page)).to_have_text(counted(len(site.rollouts("all"))))


def test_filter_goes_along_to_all_pages(site, page):
    site.open(page, "all", "overview", "repeat=1")
    half = len(site.rollouts("all")) // 2
    expect(page.get_by_role("region", name="Rollouts")).to_contain_text(f"{half} scored")
    page.get_by_role("navigation", name="Pages of the run").get_by_role("link", name="Rollouts").click()
    expect(count_of(page)).to_have_text(counted(half))
    page.get_by_role("link", name="1 : 1", exact=True).click()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", name="Task 2 · repeat 1")).to_be_visible()
    page.goto(f"{site.origin}/#/compare?run={site.run('all')}&run={site.run('tokens')}&task=1")
    expect(page.get_by_role("main")).to_contain_text("1 shared task")


def test_filter_without_matches_is_not_an_empty_page(site, page):
    site.open(page, "all", "rollouts", "task=9999")
    expect(page.get_by_role("heading", name="No rollout matches the filter")).to_be_visible()
    site.open(page, "all", "overview", "task=9999")
    page.get_by_role("button", name="Clear the filter").click()
    expect(page.get_by_role("region", name="Rewards")).to_be_visible()
