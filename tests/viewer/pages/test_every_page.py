"""Tests of every page: its content, its link, the browser's buttons, and the theme."""

from __future__ import annotations

import re

import pytest

from tests.rows import rows_of
from tests.viewer.pages.collected import REPEATS, failing_rows

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

AGENT = "answer_match_simple_agent"


def first_of(site, agent):
    """The first rollout of an agent's tasks."""
    return min(key for key, row in site.rollouts("all").items() if row["agent_ref"]["name"] == agent)


def with_tool(site):
    """A rollout with a tool call."""
    return next(
        key
        for key, row in sorted(site.rollouts("all").items())
        if row["agent_ref"]["name"] == "example_single_tool_call_simple_agent"
        and any(item["type"] == "function_call_output" for item in row["response"]["output"])
    )


def test_runs_are_listed_with_their_outcomes(site, page):
    page.goto(site.origin)
    expect(page.get_by_role("heading", name="5 runs")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="all", exact=True))
    expect(row).to_contain_text(f"{len(site.rollouts('all'))} of {len(site.rollouts('all'))}")
    expect(row).to_contain_text("finished")
    failed = (len(failing_rows()) - 2) * REPEATS
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="failures", exact=True))
    expect(row).to_contain_text(f"{2 * REPEATS} of {len(failing_rows()) * REPEATS}, {failed} failed")
    page.get_by_role("searchbox", name="Find runs by name").fill("tok")
    expect(page.get_by_role("checkbox")).to_have_count(1)
    page.get_by_role("button", name="Settings of tokens").click()
    expect(page.locator(".settings")).to_contain_text("num_repeats")


def test_links_to_every_page_can_be_reloaded(site, page):
    tool = "{}/{}".format(*with_tool(site))
    runs = f"run={site.run('all')}&run={site.run('tokens')}"
    pages = [
        ("#/runs", "heading", "5 runs"),
        (f"#/run/{site.run('all')}/overview", "figure", AGENT),
        (f"#/run/{site.run('all')}/tasks?kind=never&by=-mean", "region", "Tasks"),
        (f"#/run/{site.run('all')}/rollouts", "grid", "Rollouts"),
        (f"#/run/{site.run('all')}/rollout/{tool}", "heading", "tool call"),
        (f"#/run/{site.run('all')}/rollout/{tool}?tab=timeline", "listbox", "Calls by time"),
        (f"#/run/{site.run('tokens')}/rollout/0/0?tab=tokens", "slider", "Token"),
        (f"#/run/{site.run('all')}/rollout/{tool}?tab=raw", "region", "Raw JSON"),
        (f"#/run/{site.run('all')}/task/0", "region", "Side by side"),
        (f"#/compare?{runs}", "heading", "Compare 2 runs"),
        (f"#/align/1?{runs}", "region", "Side by side"),
        (f"#/run/{site.run('all')}/live", "heading", "The collection has finished"),
        ("#/nowhere", "heading", "This page does not exist"),
    ]
    for address, role, name in pages:
        page.goto(f"{site.origin}/{address}")
        content = page.get_by_role("main").get_by_role(role, name=re.compile(name)).first
        expect(content).to_be_visible()
        page.reload()
        expect(content).to_be_visible()
        assert page.url == f"{site.origin}/{address}"


def test_unknown_rollouts_and_runs_are_reported(site, page):
    page.watch.expected_statuses = {404}
    for address in (f"#/run/{site.run('all')}/rollout/9999/0", "#/run/unknown/overview", "#/run/unknown/live"):
        page.goto(f"{site.origin}/{address}")
        expect(page.get_by_role("alert").first).to_contain_text(
            re.compile("does not exist|not in this run|no rollout")
        )


def test_parts_of_the_overview_lead_to_rollouts(site, page):
    site.open(page, "deep/failures", "overview")
    failed = (len(failing_rows()) - 2) * REPEATS
    cause = page.get_by_role("row").filter(has_text="model_failed")
    cause.get_by_role("link", name=str(REPEATS), exact=True).click()
    expect(page).to_have_url(re.compile("failure=model_failed"))
    expect(page.get_by_role("button", name="Remove Failure: model_failed")).to_be_visible()
    page.go_back()
    page.get_by_role("region", name="Rollouts").get_by_role("button", name=re.compile(f"^{failed} failed")).click()
    expect(page).to_have_url(re.compile("overview.*outcome=failed"))
    expect(page.get_by_role("region", name="Rewards")).to_have_count(0)


def test_back_button_returns_through_the_pages(site, page):
    page.goto(site.origin)
    page.get_by_role("link", name="all", exact=True).click()
    page.get_by_role("link", name="Show rollouts").click()
    page.get_by_role("link", name="1 : 0", exact=True).click()
    page.get_by_role("link", name="All repeats").click()
    expect(page).to_have_title("Task 1 · all")
    for title in ("Rollout 1:0 · all", "Rollouts · all", "Overview · all", "Runs"):
        page.go_back()
        expect(page).to_have_title(title)
    page.go_forward()
    expect(page).to_have_title("Overview · all")


def test_chosen_runs_are_compared_down_to_a_task(site, page):
    page.goto(site.origin)
    for name in ("all", "tokens"):
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    others = len({task for task, _ in site.rollouts("all")}) - 5
    expect(page.get_by_role("main")).to_contain_text(f"5 shared tasks · {others} only in all")
    expect(page.get_by_role("region", name="Compared with all")).to_be_visible()
    page.get_by_role("button", name="Swap the runs").click()
    expect(page.get_by_role("region", name="Compared with tokens")).to_be_visible()
    expect(page.get_by_role("region", name="Table of settings")).to_contain_text("policy_model")
    tasks = page.get_by_role("region", name="Tasks by difference")
    tasks.get_by_role("link", name="3", exact=True).click()
    steps = page.get_by_role("region", name="Steps")
    expect(steps.get_by_role("columnheader")).to_contain_text(["tokens · repeat", "all · repeat"])
    page.get_by_role("combobox", name="all").select_option("1")
    expect(steps.get_by_role("link", name="all · repeat 1")).to_be_visible()
    expect(steps).to_contain_text("They part here")
    page.get_by_role("link", name="Back to the comparison").click()
    expect(page.get_by_role("region", name="Compared with tokens")).to_be_visible()


def test_repeats_of_a_task_are_chosen(site, page):
    site.open(page, "all", "task/0")
    steps = page.get_by_role("region", name="Steps")
    expect(steps.get_by_role("columnheader")).to_have_count(REPEATS)
    page.get_by_role("checkbox", name=re.compile("^0 ")).uncheck()
    expect(steps.get_by_role("columnheader")).to_have_count(REPEATS - 1)
    expect(page).to_have_url(re.compile("show=1"))


def test_pictures_of_a_task_are_shown(site, page):
    site.open(page, "all", "rollout/{}/{}".format(*first_of(site, "visual_reasoning_simple_agent")))
    picture = page.get_by_role("main").get_by_role("img").and_(page.locator("img")).first
    expect(picture).to_be_visible()
    page.wait_for_function("document.querySelector('main img').naturalWidth > 10")


def test_judge_and_its_verdict_are_shown(site, page):
    key = first_of(site, "equivalence_llm_judge_simple_agent")
    site.open(page, "all", "rollout/{}/{}".format(*key))
    judged = page.get_by_role("region", name="Verification")
    expect(judged).to_contain_text(re.compile(r"\[\[A(!)?=B\]\]|A(!)?=B|expected_answer"))


def test_tokens_are_shown_one_by_one(site, page):
    site.open(page, "tokens", "rollout/0/0", "tab=tokens")
    tokens = page.get_by_role("region", name="Tokens")
    output = site.rollouts("tokens")[0, 0]["response"]["output"][0]
    prompt, sampled = len(output["prompt_token_ids"]), len(output["generation_token_ids"])
    expect(tokens).to_contain_text(f"{prompt + sampled} tokens · {prompt} in the prompt · {sampled} trained")
    page.get_by_role("combobox", name="Go to").select_option("Turn 1, sampled")
    expect(tokens).to_contain_text(str(output["generation_token_ids"][0]))


def test_time_line_has_every_call(site, page):
    key = with_tool(site)
    site.open(page, "all", "rollout/{}/{}".format(*key), "tab=timeline")
    spans = page.get_by_role("listbox", name="Calls by time")
    rollout = site.rollouts("all")[key]
    calls = len(rollout["ng_trajectory"]["model_calls"])
    expect(spans.get_by_role("group", name="model").get_by_role("option")).to_have_count(calls)
    tools = len(rollout["ng_trajectory"]["tool_calls"])
    expect(spans.get_by_role("group", name="environment").get_by_role("option")).to_have_count(tools)


def test_reason_is_above_the_rollout_and_reward_has_its_colour(site, page):
    colours = {}
    for reward in (0.0, 1.0):
        key = next(
            key
            for key, row in sorted(site.rollouts("all").items())
            if (row.get("reward"), "why" in row) == (reward, True)
        )
        site.open(page, "all", "rollout/{}/{}".format(*key))
        expect(page.get_by_role("region", name="Why")).to_contain_text(site.rollouts("all")[key]["why"])
        expect(page.get_by_role("region", name="Verification").get_by_role("rowheader", name="why")).to_have_count(0)
        expect(page.get_by_role("main").get_by_text("scored", exact=True)).to_have_count(0)
        shown = page.locator(".rollout-title").get_by_text(f"{reward:g}", exact=True)
        colours[reward] = shown.evaluate("(element) => getComputedStyle(element).color")
    assert colours[0.0] != colours[1.0]


def test_failure_is_shown_with_its_log(site, page):
    site.open(page, "deep/refused", "rollout/0/0")
    failure = page.get_by_role("region", name="Failure")
    expect(failure).to_contain_text("model_failed")
    expect(failure).to_contain_text("Unknown field 'spam'.")
    expect(failure).to_contain_text("policy_model.log")


def test_earlier_attempts_can_be_opened(site, page):
    site.open(page, "deep/failures", f"rollout/{len(failing_rows()) - 1}/0")
    expect(page.get_by_role("main")).to_contain_text("reward 1")
    page.get_by_role("combobox", name="Attempt").select_option("1 (failed)")
    expect(page.get_by_role("region", name="Failure")).to_contain_text("overloaded")
    expect(page).to_have_url(re.compile("attempt=0"))


def test_raw_json_is_the_line_of_the_file(site, page):
    site.open(page, "tokens", "rollout/0/0", "tab=raw")
    raw = page.get_by_role("region", name="Raw JSON")
    lines = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows_of(site.folder / "tokens.jsonl")]
    expect(raw).to_contain_text(f"tokens.jsonl:{lines.index((0, 0)) + 1} · ")
    for name in site.rollouts("tokens")[0, 0]:
        expect(raw).to_contain_text(f"{name}:")


def test_hidden_parts_are_kept_in_the_address(site, page):
    site.open(page, "all", "rollout/{}/{}".format(*with_tool(site)))
    calls = page.get_by_role("heading", name=re.compile("^tool call"))
    expect(calls.first).to_be_visible()
    page.get_by_role("button", name="Tool calls").click()
    expect(calls).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="Tool calls")).to_have_attribute("aria-pressed", "false")
    expect(calls).to_have_count(0)


def test_chosen_theme_survives_a_reload(site, open_page):
    page = open_page(site, color_scheme="dark")
    page.goto(site.origin)
    root = page.locator("html")
    page.get_by_role("button", name="Light colours (t)").click()
    expect(root).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.get_by_role("button", name="Dark colours (t)")).to_be_visible()
    page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "dark")
