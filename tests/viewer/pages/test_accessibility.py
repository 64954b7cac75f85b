"""Tests that pages can be used by keyboard alone, and that axe-core finds nothing serious in them."""

from __future__ import annotations

import pytest

from tests.viewer.pages.collected import REPOSITORY
from tests.viewer.pages.table import count_of, counted, selected

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

AXE = REPOSITORY / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .flatMap(({id, nodes}) => nodes.slice(0, 3).map((node) => `${id}: ${node.target} ${node.failureSummary}`))"""


def is_loaded(page):
    """Wait until nothing is loading. Meanwhile, old data are pale."""
    expect(page.locator(".spinner, .is-stale, [aria-busy=true]")).to_have_count(0)


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run 'npm ci' in viewer/")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(site, open_page, width, theme):
    page = open_page(site, width=width, color_scheme=theme, scripts=(AXE,))
    runs = f"run={site.run('all')}&run={site.run('tokens')}"
    every, failed, sampled = (f"#/run/{site.run(name)}" for name in ("all", "deep/refused", "tokens"))
    found = []
    for address in [
        "#/runs", f"{every}/overview", f"{failed}/overview", f"{every}/rollouts?row=3&repeat=1",
        f"{every}/tasks?kind=never", f"{every}/rollout/60/0",
        f"{every}/rollout/45/0", f"{every}/rollout/60/0?tab=timeline", f"{sampled}/rollout/0/0?tab=tokens",
        f"{every}/rollout/60/0?tab=raw", f"{failed}/rollout/0/0", f"#/run/{site.run('attacks')}/rollout/0/0",
        f"{every}/task/60", f"#/compare?{runs}", f"#/align/1?{runs}", f"{every}/live", "#/nowhere",
    ]:  # fmt: skip
        page.goto(f"{site.origin}/{address}")
        expect(page.get_by_role("heading").first).to_be_attached()
        is_loaded(page)
        found += [f"{address}: {problem}" for problem in page.evaluate(SERIOUS)]
    site.open(page, "all", "rollouts")
    for button in ("+ Filter", "Columns", "Keys and help (?)"):
        page.get_by_role("button", name=button).click()
        found += [f"{button}: {problem}" for problem in page.evaluate(SERIOUS)]
        page.keyboard.press("Escape")
    assert found == []


@pytest.mark.parametrize("path", ["overview", "tasks", "rollouts", "rollout/60/0", "task/60"])
def test_narrow_pages_do_not_scroll_sideways(site, open_page, path):
    page = open_page(site, width=400)
    site.open(page, "all", path)
    expect(page.get_by_role("heading").first).to_be_attached()
    is_loaded(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def tab_to(page, target, key="Tab"):
    """Press Tab until the element has the focus, and check that the focus can be seen."""
    expect(target).to_be_visible()
    for _ in range(80):
        page.keyboard.press(key)
        if target.evaluate("(each) => each === document.activeElement"):
            outline = target.evaluate(
                "(each) => getComputedStyle(each).outlineStyle + getComputedStyle(each).boxShadow"
            )
            assert outline != "nonenone"
            return
    raise AssertionError(f"Tab does not reach {target}")


def test_keyboard_leads_to_a_tool_call_and_back(site, page):
    page.goto(site.origin)
    tab_to(page, page.get_by_role("link", name="all", exact=True))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("link", name="Show rollouts"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name="+ Filter"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Find a filter or field")).to_be_focused()
    page.keyboard.type("Tool used")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    zoom = page.locator(".filter-panel").get_by_role("button", name="zoom")
    tab_to(page, zoom)
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="+ Filter")).to_be_focused()
    with_zoom = [
        key
        for key, row in sorted(site.rollouts("all").items())
        if any(item.get("name") == "zoom" for item in row["response"]["output"])
    ]
    expect(count_of(page)).to_have_text(counted(len(with_zoom)))
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Rollout {}:{} · all".format(*with_zoom[1]))
    call = page.locator("article.item-tool").first
    expect(call.get_by_role("heading")).to_contain_text("zoom")
    arguments = call.locator("summary, button").first
    tab_to(page, arguments)
    page.keyboard.press("Escape")
    expect(selected(page)).to_have_attribute("id", "row-1")
    tab_to(page, page.get_by_role("navigation", name="Where you are").get_by_role("link", name="Runs"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="5 runs")).to_be_visible()
