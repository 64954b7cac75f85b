"""Limits on the tokens, the cost and the duration of a run, and what the run records of them."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.usage import PriceFile, Tokens, Usage, tokens_of
from nemo_gym.schemas.row import Row
from tests.conftest import PATIENCE_S
from tests.waiting import async_until

PRICES = "currency: EUR\nmodels: {small: {input: 1000000, cached_input: 500000, output: 2000000}}\n"


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES, "utf-8")
    return path


def rollout(model="small", **usage) -> Row:
    return Row({"response": {"model": model, "usage": usage}, "reward": 1.0})


async def test_run_ends_before_token_limit_is_exceeded(run_tasks, run_again, make_task):
    run = await run_tasks([make_task(n) for n in range(20)], num_samples_in_parallel=1, max_total_tokens=40)
    assert (run.summary.scored, run.summary.unresolved) == (5, 15)
    assert run.summary.ended_by == "max_total_tokens: another rollout would probably exceed 40 tokens"
    assert run.record["ended_by"] == run.summary.ended_by
    assert run.record["usage"] == {
        "input_tokens": 15, "cached_tokens": 0, "output_tokens": 20, "rollouts_without_usage": 0,
    }  # fmt: skip
    run = await run_again(num_samples_in_parallel=1, max_total_tokens=70)
    assert (run.summary.scored, run.summary.kept) == (10, 5)
    run = await run_again()
    assert (run.summary.scored, run.summary.ended_by) == (20, None)
    assert run.summary.usage.tokens == Tokens(60, 0, 80)


async def test_tokens_of_simulated_users_count(run_tasks, make_task, prices):
    user = {"user_model": "small", "user_usage": {"input_tokens": 1, "output_tokens": 2}}
    run = await run_tasks(
        [make_task(n, **user) for n in range(20)], num_samples_in_parallel=1, max_total_tokens=40, prices=prices
    )
    # Ten tokens per rollout: seven of the policy, and three of the user.
    assert (run.summary.scored, run.summary.usage.tokens) == (4, Tokens(16, 0, 24))
    assert run.summary.usage.by_model["small"] == Tokens(4, 0, 8)


async def test_rollouts_in_progress_count_against_limit(run_tasks, make_task):
    # Four start at once. As soon as one has ended, it and the three in progress make 28 tokens.
    run = await run_tasks([make_task(n) for n in range(20)], num_samples_in_parallel=4, max_total_tokens=30)
    assert run.summary.scored == 4


async def test_limit_holds_for_many_parallel_rollouts(run_tasks, make_task, agent):
    run = await run_tasks([make_task(n) for n in range(300)], max_total_tokens=700)
    assert (run.summary.scored, run.summary.usage.tokens.total) == (100, 700)
    # Before the first one has ended, nothing is known of the tokens.
    held = [make_task(n, act="held") for n in range(300)]
    running = asyncio.create_task(run_tasks(held, max_total_tokens=70, overwrite=True))
    await async_until(lambda: agent.state()["now"] == 8, PATIENCE_S)
    agent.release()
    assert (await running).summary.scored == 10


async def test_rollouts_without_usage_count_like_the_others(run_tasks, make_task):
    rows = [make_task(n, usage=None) if n == 2 else make_task(n) for n in range(30)]
    run = await run_tasks(rows, num_samples_in_parallel=1, max_total_tokens=70)
    assert (run.summary.scored, run.summary.usage.unknown) == (10, 1)


async def test_run_ends_before_cost_limit_is_exceeded(run_tasks, make_task, prices):
    settings = {"num_samples_in_parallel": 1, "max_cost": 25, "prices": prices}
    run = await run_tasks([make_task(n) for n in range(9)], **settings)
    assert run.summary.scored == 2
    assert run.summary.ended_by == "max_cost: another rollout would probably exceed 25 EUR"
    assert (run.record["usage"]["cost"], run.record["usage"]["currency"]) == (22, "EUR")


@pytest.mark.parametrize(
    ("settings", "usage", "reason"),
    [
        ({"max_total_tokens": 10**6}, None, "max_total_tokens: the endpoint does not report token usage"),
        ({"max_cost": 10**6}, {"input_tokens": 1, "output_tokens": 1}, "does not list small-2026-01"),
    ],
)
async def test_limit_that_cannot_be_enforced_ends_run(run_tasks, make_task, prices, settings, usage, reason):
    prices.write_text("models: {other: {input: 1, output: 1}}", "utf-8")
    rows = [make_task(n, usage=usage) for n in range(9)]
    run = await run_tasks(rows, num_samples_in_parallel=1, prices=prices, **settings)
    assert run.summary.scored == 1
    assert reason in run.summary.ended_by


async def test_run_ends_after_max_seconds(run_tasks, run_again, make_task, agent):
    rows = [make_task(0), *(make_task(n, act="held") for n in range(1, 5))]
    run = await run_tasks(rows, num_samples_in_parallel=2, max_seconds=0.5)
    assert run.summary.unresolved == 5 - run.summary.scored >= 4
    assert run.summary.ended_by == "max_seconds: 0.5 s have passed"
    agent.release()
    assert (await run_again()).summary.scored == 5


def add(usage, row):
    usage.add(tokens_of(row), is_scored=row.failure_class is None)


def test_failed_attempts_with_known_tokens_are_counted():
    usage = Usage()
    add(usage, rollout(input_tokens=10, output_tokens=5, input_tokens_details={"cached_tokens": 4}))
    add(usage, Row({"_ng_failure_class": "timeout"}))
    add(usage, Row({**rollout(input_tokens=1, output_tokens=1).fields, "_ng_failure_class": "judge_failed"}))
    add(usage, Row({"response": {"usage": {"input_tokens": None}}, "reward": 1.0}))
    assert (usage.tokens, usage.rollouts, usage.unknown) == (Tokens(11, 4, 6), 2, 1)


def test_cached_input_has_its_own_price(prices):
    usage = Usage()
    add(usage, rollout(input_tokens=10, output_tokens=5, input_tokens_details={"cached_tokens": 4}))
    add(usage, rollout("unknown", input_tokens=10, output_tokens=5))
    listed = PriceFile.read(prices)
    assert usage.cost(listed) == 6 + 2 + 10
    assert usage.described(listed) == (
        "20 input (20 % cached) + 10 output; cost: 18 EUR, without unknown, which the price file does not list"
    )


def test_price_applies_with_and_without_date():
    prices = PriceFile.model_validate({"models": {"m-1": {"input": 1, "output": 1}, "m": {"input": 2, "output": 2}}})
    names = ("m-1", "m-1-2026-01-31", "m-2026", "m-1-mini", "mx")
    assert [(price := prices.of(name)) and price.input for name in names] == [1, 1, 2, None, None]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: {a: {input: -1, output: 2}}", "models.a.input"),
        ("models: {a: {input: 1, ouput: 2}}", "models.a.ouput"),
        ("models: [", "cannot be read"),
        ("models: {}", "models"),
    ],
)
def test_bad_price_file_is_reported_with_its_key(tmp_path, text, problem):
    path = tmp_path / "prices.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError) as caught:
        PriceFile.read(path)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)


def test_cost_limit_needs_prices(tmp_path):
    with pytest.raises(ValidationError, match=r"--prices prices\.yaml"):
        CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl", max_cost=1)
