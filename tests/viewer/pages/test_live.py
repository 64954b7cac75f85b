"""Tests of the live page: a collection in the background, steered by the buttons, and its ledger at the end."""

from __future__ import annotations

import re

import orjson
import pytest

from tests.rows import rows_of
from tests.viewer.pages.collected import FIRST_ENVIRONMENT, MODEL, REPOSITORY
from tests.viewer.pages.table import count_of

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

REPEATS = 180
PLANNED = 5 * REPEATS
CONCURRENCY = 2


@pytest.fixture
def slow_model(request, run_endpoint):
    """An endpoint whose answers take half a second, or the seconds that a test asks for."""
    seconds = getattr(request, "param", 0.5)
    with run_endpoint() as url:
        yield f"+policy_base_url={url}/v1", "+policy_api_key=none", f"+policy_model_name=slow:{seconds}"


@pytest.fixture
def collection(site, shared_workplace, slow_model):
    """The output of a collection in the background, which ends with the test."""
    results = site.folder / "slow.jsonl"
    started = shared_workplace.start(
        "ng", "eval", "run", "--config", f"{REPOSITORY}/{FIRST_ENVIRONMENT}", "--config", f"{REPOSITORY}/{MODEL}",
        *slow_model, "+split=example", "--num-repeats", str(REPEATS), "--concurrency", str(CONCURRENCY), "--output",
        str(results), "+head_server.port=0", "--overwrite", "--detach",
    ).wait()  # fmt: skip
    assert started.code == 0, started.err
    yield results
    shared_workplace.run("ng", "eval", "ctl", str(results), "stop")
    shared_workplace.run("ng", "eval", "wait", str(results), "--timeout-s", "60")


def set_concurrency(control, number):
    """Set the number of rollouts at once, and wait for the collection's answer."""
    control.get_by_role("spinbutton", name="Concurrency").fill(str(number))
    control.get_by_role("button", name="Set").click()
    expect(control.get_by_role("status")).to_have_text(re.compile(f"At most {number} rollouts? run at once."))


def seconds_of(chart):
    """Return how many seconds ago the chart begins."""
    ago = re.search(r"since (?:(\d+) min )?(\d+) s ago", chart.get_attribute("aria-label"))
    return 60 * int(ago[1] or 0) + int(ago[2])


def leave_and_come_back(page):
    """Look at the rollouts, go back, and check that the chart has kept what it showed."""
    chart = page.get_by_role("img", name=re.compile("rollouts per second.*since"))
    expect(chart).to_have_attribute("aria-label", re.compile(r"since .* s ago"))
    samples = seconds_of(chart)
    page.get_by_role("navigation", name="Pages of the run").get_by_role("link", name="Rollouts").click()
    expect(count_of(page)).to_have_text(f"{PLANNED} rollouts")
    page.go_back()
    expect(chart).to_be_visible()
    assert seconds_of(chart) >= samples


def test_collection_is_steered_by_the_buttons(collection, site, page, shared_workplace):
    page.goto(site.origin)
    page.get_by_role("link", name="slow", exact=True).click()
    page.get_by_role("navigation", name="Pages of the run").get_by_role("link", name="Live").click()
    control, now = page.get_by_role("region", name="Control"), page.get_by_role("region", name="Now")
    answer = control.get_by_role("status")

    control.get_by_role("button", name="Pause").click()
    expect(answer).to_have_text("Paused. Running rollouts go on; no further one starts.")
    expect(now).to_contain_text("paused")
    expect(page.get_by_role("navigation", name="Where you are")).to_contain_text("paused")
    expect(now).to_contain_text(re.compile(r"in flight\s*0|0\s*in flight"))

    set_concurrency(control, 3)
    expect(now).to_contain_text("of at most 3")

    # The second task has not run yet, because the first one takes 45 seconds. When its turn comes, the other three
    # leave time enough for the next buttons.
    control.get_by_role("textbox", name="Cancel").fill("1")
    control.get_by_role("button", name="Cancel", exact=True).click()
    expect(answer).to_contain_text("of task 1 is running. Those that have not started will not run.")

    set_concurrency(control, 9)
    control.get_by_role("button", name="Resume").click()
    expect(answer).to_have_text("Resumed.")
    for server in ("policy_model", "answer_match", "answer_match_simple_agent"):
        expect(page.get_by_role("region", name="Servers", exact=True)).to_contain_text(server)
    expect(now).to_contain_text(re.compile(f"cancelled {REPEATS}"))

    control.get_by_role("button", name="Pause").click()
    control.get_by_role("button", name=f"Requeue {REPEATS} failed").click()
    expect(answer).to_have_text(f"{REPEATS} rollouts will run again.")
    set_concurrency(control, 1)
    control.get_by_role("button", name="Resume").click()
    expect(now).to_contain_text("to run again")
    expect(page.get_by_role("region", name="Running for longest", exact=True)).to_contain_text("task ")
    # Other pages of the run also follow it, and the chart goes on when the reader comes back.
    leave_and_come_back(page)
    control.get_by_role("button", name="Drain").click()
    expect(answer).to_contain_text("No further rollout starts. The collection ends after")
    expect(page.get_by_role("heading", name=re.compile("The collection"))).to_be_visible()
    shared_workplace.run("ng", "eval", "wait", str(collection), "--timeout-s", "60")

    scored, tried = rows_of(collection), rows_of(collection.with_name("slow_failures.jsonl"))
    record = orjson.loads(collection.with_name("slow_run.json").read_bytes())
    outcomes = record["outcomes"]
    assert [entry["verb"] for entry in record["control"]] == [
        "pause", "concurrency", "cancel", "concurrency", "resume", "pause", "requeue", "concurrency", "resume", "drain"
    ]  # fmt: skip
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in scored]
    assert len(keys) == len(set(keys)) == outcomes["scored"]
    assert (
        outcomes["planned"]
        == PLANNED
        == outcomes["scored"] + sum(outcomes["failed"].values()) + outcomes["unresolved"]
    )
    assert [row["_ng_failure_class"] for row in tried] == ["cancelled"] * REPEATS
    assert {task for task, _ in keys} >= {0}
    shown = page.get_by_text(re.compile(r"\d+ scored, \d+ failed, \d+ unresolved"))
    failed = sum(outcomes["failed"].values())
    expect(shown).to_contain_text(f"{outcomes['scored']} scored, {failed} failed, {outcomes['unresolved']} unresolved")


# The rollout whose button the test presses must still run by then, on any machine.
@pytest.mark.parametrize("slow_model", [300], indirect=True)
def test_stop_asks_first(collection, site, page):
    page.goto(site.origin)
    page.get_by_role("link", name="slow", exact=True).click()
    page.get_by_role("navigation", name="Pages of the run").get_by_role("link", name="Live").click()
    control = page.get_by_role("region", name="Control")
    stop = control.get_by_role("button", name="Stop…")
    stop.click()
    dialog = page.get_by_role("dialog", name="Stop this collection?")
    dialog.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Cancel task")).first.click()
    expect(control.get_by_role("status")).to_contain_text("Cancelled 1 running")
    stop.click()
    dialog.get_by_role("button", name="Stop now").click()
    expect(
        page.get_by_role("heading", name="The collection is not running: interrupted").or_(
            page.get_by_role("heading", name="The collection is not running: stopped")
        )
    ).to_be_visible()
