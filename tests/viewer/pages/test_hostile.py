"""Tests of attacks on the reader: nothing runs, nothing is sent, and the attack can be read as text."""

from __future__ import annotations

import re

import pytest

from tests.viewer.pages import hostile
from tests.viewer.pages.table import count_of, counted

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

FORBIDDEN = """() => [
    ...document.querySelectorAll("script:not([src]), iframe, object, embed, form[action], base"),
    ...document.querySelectorAll("meta[http-equiv=refresh]"),
    ...[...document.querySelectorAll("*")].filter((each) =>
        [...each.attributes].some(({ name, value }) =>
            name.startsWith("on") || /^\\s*(javascript|data:text)/i.test(value))),
    ...[...document.querySelectorAll("[src], link[href]")].filter((each) => (each.src || each.href).includes("evil")),
].map((each) => each.outerHTML.slice(0, 200))"""


def check(page):
    """Check that no attack had an effect. The window's watch checks the rest when the test ends."""
    assert page.evaluate(FORBIDDEN) == []
    assert page.evaluate("window.attacked") is None
    assert "evil" not in page.url
    expect(page.locator("#app main")).to_be_visible()


@pytest.mark.parametrize("path", ["rollout/0/0", "rollout/0/0?tab=raw", "rollout/0/0?raw=true&unfold=true", "task/0"])
def test_attacks_in_a_conversation_stay_text(site, page, path):
    site.open(page, "attacks", *path.split("?"))
    main = page.get_by_role("main")
    expect(main).to_contain_text("alert(1)")
    for summary in page.locator("details:not([open]) > summary").all():
        if summary.is_visible():
            summary.click()
    expect(main).to_contain_text("after the attack" if "raw" not in path or "unfold" in path else "alert(1)")
    check(page)
    # Characters that reorder text or control a terminal are shown by their number.
    text = main.inner_text()
    assert not re.search("[\u202e\u2066\u2069\x1b\x07]", text)


def test_attacks_stay_text_on_other_pages(site, page):
    for path in (
        "overview",
        "rollouts",
        "rollout/2/0",
        "task/2",
        "rollout/0/0?tab=tokens",
        "rollout/0/0?tab=timeline",
    ):
        site.open(page, "attacks", *path.split("?"))
        expect(page.get_by_role("heading", level=1).first).to_be_attached()
        check(page)
    page.goto(f"{site.origin}/#/compare?run={site.run('attacks')}&run={site.run('all')}")
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    check(page)


def test_attacks_in_the_address_stay_text(site, page):
    page.watch.expected_statuses = {400, 404}
    for query in (f"tag={hostile.NAME}", f"words={hostile.NAME}", f"field={hostile.NAME}={hostile.NAME}", "sort=<b>"):
        site.open(page, "all", "rollouts", query)
        expect(page.get_by_role("heading", name="Rollouts", exact=True)).to_be_attached()
        check(page)
    page.goto(f"{site.origin}/#/run/{hostile.NAME}/rollouts")
    expect(page.get_by_role("alert").first).to_be_visible()
    check(page)


def test_hostile_names_can_be_filtered_and_shown(site, page):
    site.open(page, "attacks", "rollouts", f"column=task&column={hostile.NAME}")
    expect(count_of(page)).to_have_text(counted(len(site.rollouts("attacks"))))
    expect(page.get_by_role("grid")).to_contain_text("alert(9)")
    page.get_by_role("button", name="+ Filter").click()
    page.get_by_role("textbox", name="Find a filter or field").fill("Tool used")
    page.locator(".filter-panel").get_by_role("button", name="Tool used").click()
    page.locator(".filter-panel").get_by_role("button", name="onerror").click()
    expect(count_of(page)).to_have_text(counted(2))
    check(page)


def test_link_of_a_model_asks_before_it_leaves(site, page):
    site.open(page, "attacks", "rollout/0/0")
    link = page.get_by_role("link", name="https://evil.example/auto").first
    expect(link).to_have_attribute("rel", re.compile("noopener|noreferrer"))
    expect(link).to_have_attribute("target", "_blank")


def test_line_of_a_megabyte_is_shortened(site, page):
    site.open(page, "attacks", "rollout/1/0")
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("main")).to_contain_text("xxxxx")
    assert len(page.get_by_role("main").inner_text()) < 200_000
    site.open(page, "attacks", "rollout/1/0", "tab=raw")
    raw = page.get_by_role("region", name="Raw JSON")
    expect(raw).to_contain_text("1.1 MB")
    check(page)
