"""Tests of an exported report in a browser: opened from disk with the network cut, it has the same pages."""

from __future__ import annotations

import re

import pytest

from tests.viewer.pages.table import count_of, counted, shown
from tests.viewer.pages.watched import Watch

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect


@pytest.fixture(scope="module")
def report(shared_workplace, collected):
    """A report of several runs."""
    path = shared_workplace.folder / "report.html"
    runs = [str(collected / f"{name}.jsonl") for name in ("all", "tokens", "attacks", "deep/failures")]
    finished = shared_workplace.run("ng_view", *runs, "--export", str(path), "--limit", "400")
    assert finished.code == 0, finished.err
    return path


@pytest.fixture
def page(report, browser):
    """A window with the report."""
    context = browser.new_context(offline=True)
    watch = Watch(context, "file://")
    page = context.new_page()
    page.goto(report.as_uri())
    yield page
    context.close()
    assert watch.complaints == []


def run(page, name):
    """Return the address of a run's pages."""
    link = page.get_by_role("link", name=name, exact=True)
    return link.get_attribute("href").partition("?")[0].removesuffix("/overview")


def go(page, address):
    page.goto(f"{page.url.partition('#')[0]}{address}")


def test_every_page_is_in_the_report(page):
    expect(page.get_by_role("heading", name="4 runs")).to_be_visible()
    every, tokens = run(page, "all"), run(page, "tokens")
    runs = f"run={every.split('/')[-1]}&run={tokens.split('/')[-1]}"
    together = "&".join(f"run={run(page, name).split('/')[-1]}" for name in ("all", "tokens", "attacks", "failures"))
    for address, role, name in [
        (f"{every}/overview", "figure", "mcqa_simple_agent"),
        (f"{every}/tasks", "region", "Tasks"),
        (f"{every}/tools", "region", "Tools"),
        (f"{every}/training", "heading", "No rollout has a policy version"),
        (f"{every}/rollouts", "grid", "Rollouts"),
        (f"{every}/rollout/60/0", "heading", "Task 60 · repeat 0"),
        (f"{every}/rollout/60/0?tab=timeline", "listbox", "Calls by time"),
        (f"{tokens}/rollout/0/0?tab=tokens", "slider", "Token"),
        (f"{every}/rollout/60/0?tab=raw", "heading", "No raw line"),
        (f"{every}/task/60", "region", "Side by side"),
        (f"#/compare?{together}", "heading", "Compare 4 runs"),
        (f"#/align/1?{runs}", "region", "Side by side"),
    ]:
        go(page, address)
        expect(page.get_by_role("main").get_by_role(role, name=re.compile(name)).first).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_report_filters_sorts_and_searches(page):
    every = run(page, "all")
    go(page, f"{every}/rollouts?agent=answer_match_simple_agent")
    expect(count_of(page)).to_have_text(counted(10))
    page.get_by_role("button", name="Task", exact=True).click()
    expect(page.get_by_role("columnheader", name="Task")).to_have_attribute("aria-sort", "descending")
    assert shown(page)[0] == (4, 1)
    words = page.get_by_role("searchbox", name="Words in the conversation")
    words.fill("bicycle bell")
    expect(count_of(page)).to_have_text(counted(2))
    words.blur()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Rollout 1:1 · all")


def test_pictures_are_in_the_report(site, page):
    agents = {task: row["agent_ref"]["name"] for (task, _), row in site.rollouts("all").items()}
    task = next(task for task, agent in sorted(agents.items()) if agent == "visual_reasoning_simple_agent")
    go(page, f"{run(page, 'all')}/rollout/{task}/0")
    expect(page.locator("main img").first).to_be_visible()
    page.wait_for_function("document.querySelector('main img').naturalWidth > 10")


def test_attacks_stay_text_in_the_report(page):
    attacks = run(page, "attacks")
    for path in ("rollout/0/0", "rollout/2/0", "rollouts", "overview", "task/0"):
        go(page, f"{attacks}/{path}")
        expect(page.get_by_role("main").get_by_text(re.compile("attacks|alert|rollouts")).first).to_be_attached()
        assert page.evaluate("window.attacked") is None


def test_report_changes_nothing(page):
    tokens = run(page, "tokens")
    go(page, f"{tokens}/rollout/0/0")
    expect(page.get_by_role("heading", name="Task 0 · repeat 0")).to_be_visible()
    expect(page.get_by_role("textbox", name="Comment")).to_have_count(0)
    go(page, f"{tokens}/rollouts")
    expect(count_of(page)).to_have_text(counted(10))
    expect(page.get_by_role("button", name=re.compile("^Star task"))).to_have_count(0)
