"""The counter, its reward, and the isolation of rollouts."""

import asyncio
from pathlib import Path

import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.example_session_state_mgmt.app import CounterServer

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


@pytest.fixture
def server():
    return make_server(CounterServer)


async def value_of(attempt):
    return orjson.loads(await attempt.call("get_counter_value"))["count"]


@pytest.mark.parametrize(
    ("initial", "steps", "expected", "reward"),
    [
        (0, [5], 5, 1.0),
        (0, [2, 3], 5, 1.0),
        (10, [-3], 7, 1.0),
        (-4, [4, 6], 6, 1.0),
        (2, [], 2, 1.0),
        (2, [1, -1], 2, 1.0),
        (0, [4], 5, 0.0),
        (0, [5, 1], 5, 0.0),
        (3, [], 4, 0.0),
        (0, [-5], 5, 0.0),
    ],
)
async def test_only_the_expected_count_is_rewarded(server, initial, steps, expected, reward):
    async with rollout(server, initial_count=initial, expected_count=expected) as attempt:
        for step in steps:
            assert orjson.loads(await attempt.call("increment_counter", count=step)) == {"success": True}
        assert await value_of(attempt) == initial + sum(steps)
        assert (await attempt.verify()).reward == reward


async def test_counter_starts_at_zero_by_default(server):
    async with rollout(server, expected_count=0) as attempt:
        assert await value_of(attempt) == 0
        assert (await attempt.verify()).reward == 1.0


async def test_model_text_does_not_affect_the_reward(server):
    async with rollout(server, initial_count=0, expected_count=5) as attempt:
        graded = await attempt.verify(reply("The counter is at 5."))
    assert (graded.reward, graded.why) == (0.0, "the counter is at 0, and 5 is expected")


@pytest.mark.parametrize(
    "arguments", [{}, {"count": "many"}, {"count": 1.5}, {"count": None}, {"count": 1, "by": 1}, {"count": 1e300}]
)
async def test_wrong_arguments_are_rejected_and_change_nothing(server, arguments):
    async with rollout(server, initial_count=3, expected_count=3) as attempt:
        assert (await attempt.call("increment_counter", **arguments)).startswith("Invalid arguments")
        assert (await attempt.verify()).reward == 1.0


async def test_counter_may_exceed_64_bits(server):
    largest = 2**63 - 1
    async with rollout(server, initial_count=0, expected_count=0) as attempt:
        for _ in range(4):
            await attempt.call("increment_counter", count=largest)
        assert await attempt.call("get_counter_value") == f'{{"count":{4 * largest}}}'
        assert (await attempt.verify()).reward == 0.0


async def test_concurrent_rollouts_do_not_share_a_counter(server):
    async def play(initial):
        async with rollout(server, initial_count=initial, expected_count=initial + 10) as attempt:
            for _ in range(10):
                await attempt.call("increment_counter", count=1)
                await asyncio.sleep(0)
            return await value_of(attempt), (await attempt.verify()).reward

    assert await asyncio.gather(*map(play, range(8))) == [(initial + 10, 1.0) for initial in range(8)]


async def test_grading_discards_the_counter(server):
    async with rollout(server, initial_count=4, expected_count=4) as attempt:
        assert (await attempt.verify()).reward == 1.0
        assert len(server.sessions) == 0
        assert await value_of(attempt) == 0


async def test_row_without_expected_count_is_rejected(server):
    async with rollout(server, initial_count=4) as attempt:
        with pytest.raises(DataError, match="expected_count"):
            await attempt.verify()


async def test_initial_count_must_be_an_integer(server):
    with pytest.raises(DataError, match="initial_count"):
        async with rollout(server, initial_count="four", expected_count=4):
            pass


@pytest.mark.parametrize("row", EXAMPLES)
async def test_every_example_can_be_solved(server, row):
    async with rollout(server, **row) as attempt:
        await attempt.call("increment_counter", count=row["expected_count"] - row["initial_count"])
        graded = await attempt.verify()
    assert graded.reward == 1.0
    assert (graded.initial_count, graded.expected_count) == (row["initial_count"], row["expected_count"])
