"""Tests that questions about a large run are answered within two clicks from its overview."""

from __future__ import annotations

import random
import re

import pytest

from tests.viewer.index_rows import write
from tests.viewer.pages.test_accessibility import AXE, SERIOUS, is_loaded
from tests.viewer.test_groups import calling
from tests.viewer.training_run import REPEATS, SOLVED, VERSIONS, write_training

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

TASKS = 500
TOOLS = ("search", "read", "a_long_name_that_a_server_has_made_up_and_that_no_narrow_page_can_show_in_one_line")


@pytest.fixture(scope="module")
def failing():
    """The rollouts in which `read` fails."""
    generator = random.Random(0)
    return {(task, repeat) for task in range(TASKS) for repeat in range(4) if generator.random() < 0.1}


@pytest.fixture(scope="module")
def site(open_site, shared_workplace, failing):
    folder = shared_workplace.folder / "questions"
    folder.mkdir()
    write_training(folder, copies=70)
    keys = [(task, repeat) for task in range(TASKS) for repeat in range(4)]
    rows = (
        calling(*key, *((tool, "Error: lost" if tool == "read" and key in failing else "ok") for tool in TOOLS))
        for key in keys
    )
    write(folder / "tools.jsonl", *rows)
    return open_site(folder)


def test_which_tool_fails(site, page, failing):
    site.open(page, "tools", "overview")
    page.get_by_role("link", name="Tools", exact=True).click()
    row = page.get_by_role("region", name="Tools").get_by_role("row").nth(1)
    expect(row).to_contain_text("read")
    expect(row).to_contain_text(f"{100 * len(failing) / TASKS / 4:.3g}%")
    task, repeat = min(failing)
    expect(row).to_contain_text(f"task {task}, repeat {repeat} (failed)")
    row.get_by_role("link", name=str(len(failing)), exact=True).click()
    expect(page.get_by_role("button", name="Remove A tool failed")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text(f"{len(failing)} rollouts")


def test_how_did_the_reward_move(site, page):
    site.open(page, "train", "overview")
    page.get_by_role("link", name="Training", exact=True).click()
    first, last = (sum(SOLVED[name][version] for name in SOLVED) / REPEATS / len(SOLVED) for version in (0, -1))
    reward = page.get_by_role("region", name="Mean reward")
    expect(reward.get_by_role("img", name=f"counter_agent: {first:.3f} to {last:.3f}")).to_be_visible()
    page.get_by_role("button", name="Training step").click()
    expect(page.get_by_role("heading", name=f"{VERSIONS} steps")).to_be_visible()
    expect(page.get_by_role("region", name="loss, noted by the trainer")).to_be_visible()
    expect(page).to_have_url(re.compile("over=step"))


def test_which_tasks_stopped_to_teach(site, page):
    site.open(page, "train", "training")
    card = page.get_by_role("region", name="Tasks that teach")
    expect(card).to_contain_text("70 stopped teaching, 70 still teach, 70 never taught")
    expect(card.get_by_role("img")).to_be_visible()
    task = card.get_by_role("row").filter(has_text="A prompt: easy 0")
    expect(task).to_contain_text("always solved")
    task.get_by_role("link").click()
    expect(page).to_have_url(re.compile("rollouts.*task="))


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run 'npm ci' in viewer/")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_and_are_accessible(site, open_page, width, theme):
    page = open_page(site, width=width, color_scheme=theme, scripts=(AXE,))
    found = []
    for name, path in [
        ("train", "training"), ("tools", "tools"), ("train", "rollout/0/0?tab=tokens&as=text"),
        ("train", "rollout/0/0?tab=tokens&as=surprise"),
    ]:  # fmt: skip
        site.open(page, name, *path.split("?"))
        expect(page.get_by_role("heading").first).to_be_attached()
        is_loaded(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found += [f"{path}: {problem}" for problem in page.evaluate(SERIOUS)]
    assert found == []


def test_result_stays_in_view_and_can_be_widened(site, page):
    site.open(page, "tools", "rollout/0/0")
    side = page.get_by_role("complementary", name="Result")
    before = side.bounding_box()["width"]
    edge = page.get_by_role("separator", name="Width of the result")
    edge.focus()
    page.keyboard.press("ArrowLeft")
    expect(edge).to_have_attribute("aria-valuenow", "440")
    assert side.bounding_box()["width"] == before + 40
    page.get_by_role("button", name="Unfold").click()
    page.mouse.wheel(0, 5000)
    expect(side.get_by_role("heading", name="Result")).to_be_in_viewport()


def test_program_is_sent_compressed(site, page):
    page.goto(site.origin)
    reply = page.request.get(f"{site.origin}/app.js")
    assert reply.headers["content-encoding"] == "gzip"
