"""Tests of the way in: a browser without a session sees nothing, and an address works once."""

from __future__ import annotations

import pytest

from tests.viewer.pages.site import ADDRESS

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect


@pytest.fixture
def stranger(browser):
    """A window of a browser without a session."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_browser_without_token_is_forbidden(site, stranger):
    for path in ("/", "/#/runs", "/index.html", "/app.js", "/api/runs"):
        reply = stranger.goto(f"{site.origin}{path}")
        assert reply is None or reply.status == 403
        expect(stranger.locator("body")).to_contain_text("This browser is not connected")


def test_used_address_opens_no_second_browser(site, stranger):
    assert stranger.goto(site.first_address).status == 403
    expect(stranger.locator("body")).to_contain_text("This address was used before")
    newest = ADDRESS.findall(site.command.wait_for("For another browser"))[-1]
    stranger.goto(newest)
    expect(stranger.get_by_role("heading", name="5 runs")).to_be_visible()
    # The token does not stay in the address, so it cannot be copied from there.
    assert stranger.url == f"{site.origin}/"
    stranger.reload()
    expect(stranger.get_by_role("heading", name="5 runs")).to_be_visible()


def test_page_explains_a_viewer_that_has_ended(open_site, open_page, collected):
    site = open_site(collected / "deep")
    page = open_page(site)
    site.open(page, "failures", "overview")
    expect(page.get_by_role("region", name="Failures", exact=True)).to_be_visible()
    site.end()
    page.get_by_role("link", name="Show rollouts").click()
    expect(page.get_by_role("alert").first).to_contain_text("Is `ng view` still running?")
