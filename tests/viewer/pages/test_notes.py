"""Tests of notes: written on a page, they are in the file, survive a reload, and filter."""

from __future__ import annotations

import re
import time

import pytest

from tests.conftest import PATIENCE_S
from tests.rows import rows_of
from tests.viewer.pages.table import count_of, counted, selected, shown

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect


def written(site, name, key):
    """The latest note on a rollout in the file."""
    path = site.folder / f"{name}_notes.jsonl"
    notes = {(note["task"], note["repeat"]): note for note in rows_of(path)} if path.exists() else {}
    return {field: notes[key][field] for field in ("star", "tags", "comment")} if key in notes else None


def wait_for_note(site, name, key, field, value):
    """Wait for a note in the file, because a page that is left no longer reports it."""
    until = time.monotonic() + PATIENCE_S
    while (written(site, name, key) or {}).get(field) != value:
        assert time.monotonic() < until, f"the {field} {value!r} was not saved"
        time.sleep(0.02)


def test_star_of_a_row_is_kept(site, page):
    site.open(page, "tokens", "rollouts")
    star = page.get_by_role("button", name="Star task 0, repeat 1")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    for _ in range(3):
        page.keyboard.press("j")
    expect(selected(page)).to_have_attribute("id", "row-2")
    page.keyboard.press("s")
    page.get_by_role("button", name="Star task 1, repeat 0").and_(page.locator("[aria-pressed=true]")).wait_for()
    for key in ((0, 1), (1, 0)):
        wait_for_note(site, "tokens", key, "star", True)
    page.reload()
    expect(star).to_have_attribute("aria-pressed", "true")
    assert written(site, "tokens", (0, 1)) == {"star": True, "tags": [], "comment": ""}
    site.open(page, "tokens", "rollouts", "star=true")
    expect(count_of(page)).to_have_text(counted(2))
    assert shown(page) == [(0, 1), (1, 0)]


def test_tags_and_comment_survive_a_reload(site, page):
    site.open(page, "tokens", "rollout/3/0")
    note = page.get_by_role("region", name="Note")
    expect(note).to_be_visible()
    page.keyboard.press("s")
    expect(note.get_by_role("button", name="Star task 3, repeat 0")).to_have_attribute("aria-pressed", "true")
    for tag in ("reward hacking", "<b>bold</b>"):
        note.get_by_role("combobox", name="Add a tag").fill(tag)
        page.keyboard.press("Enter")
    expect(note.get_by_role("button", name=re.compile("^Remove the tag"))).to_have_count(2)
    note.get_by_role("combobox", name="Add a tag").blur()
    page.keyboard.press("c")
    comment = note.get_by_role("textbox", name="Comment")
    expect(comment).to_be_focused()
    page.keyboard.type("The verifier is wrong.\nSee <script>alert(1)</script>.")
    page.keyboard.press("Control+Enter")
    expect(note.get_by_text("Saved.")).to_be_visible()
    page.reload()
    expect(comment).to_have_value("The verifier is wrong.\nSee <script>alert(1)</script>.")
    expect(note).to_contain_text("<b>bold</b>")
    assert written(site, "tokens", (3, 0)) == {
        "star": True,
        "tags": ["reward hacking", "<b>bold</b>"],
        "comment": "The verifier is wrong.\nSee <script>alert(1)</script>.",
    }
    for query in ("tag=<b>bold</b>", "commented=true"):
        site.open(page, "tokens", "rollouts", query)
        expect(count_of(page)).to_have_text(counted(1))
        assert shown(page) == [(3, 0)]
        expect(page.get_by_role("grid")).to_contain_text("reward hacking")


def test_comment_is_saved_when_the_page_is_left(site, page):
    site.open(page, "tokens", "rollouts")
    page.get_by_role("link", name="4 : 0", exact=True).click()
    comment = page.get_by_role("textbox", name="Comment")
    for text, leave in (("Left in a hurry.", page.go_back), ("Closed in a hurry.", lambda: page.goto("about:blank"))):
        comment.fill(text)
        leave()
        wait_for_note(site, "tokens", (4, 0), "comment", text)
        site.open(page, "tokens", "rollout/4/0")
        expect(comment).to_have_value(text)


def test_removed_note_is_gone(site, page):
    site.note("tokens", (4, 1), star=True, tags=["odd"], comment="")
    site.open(page, "tokens", "rollout/4/1")
    note = page.get_by_role("region", name="Note")
    note.get_by_role("button", name="Remove the tag odd").click()
    note.get_by_role("button", name="Star task 4, repeat 1").click()
    expect(note.get_by_role("button", name="Star task 4, repeat 1")).to_have_attribute("aria-pressed", "false")
    expect(note.get_by_text("Saved.")).to_be_visible()
    page.reload()
    expect(note.get_by_role("button", name="Remove the tag odd")).to_have_count(0)
    assert site.get("notes", run=site.run("tokens"))[-1]["task"] != 4 or written(site, "tokens", (4, 1))["tags"] == []
