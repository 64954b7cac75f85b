"""Tests of the tool and the reward."""

from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.my_environment.app import MyEnvironmentServer
from resources_servers.my_environment.oracle import solve
from resources_servers.my_environment.prepare import prepare

EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"

pytestmark = pytest.mark.asyncio


@pytest.fixture
def server():
    return make_server(MyEnvironmentServer)


@pytest.mark.parametrize(
    ("guesses", "reward"),
    [
        ([7], 1.0),
        ([5, 8, 7], 1.0),
        ([5, 8, 6, 7], 0.0),
        ([5, 8, 6], 0.0),
        ([], 0.0),
    ],
)
async def test_number_must_be_found_in_time(server, guesses, reward):
    async with rollout(server, hidden_number=7, max_guesses=3) as attempt:
        for number in guesses:
            await attempt.call("guess_number", number=number)
        graded = await attempt.verify(reply("I am done."))
    assert graded.reward == reward
    assert graded.why.endswith(f"found in {len(guesses)} of 3 guesses")


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (9, "The hidden number is lower than 9."),
        (2, "The hidden number is higher than 2."),
        (7, "7 is the hidden number."),
    ],
)
async def test_tool_compares_guess_with_number(server, number, answer):
    async with rollout(server, hidden_number=7, max_guesses=3) as attempt:
        assert await attempt.call("guess_number", number=number) == answer


async def test_number_out_of_range_is_not_counted(server):
    async with rollout(server, hidden_number=7, max_guesses=1) as attempt:
        assert "less than or equal to 10" in await attempt.call("guess_number", number=11)
        await attempt.call("guess_number", number=7)
        assert (await attempt.verify()).reward == 1.0


@pytest.mark.parametrize("row", list(read_rows(EXAMPLES)))
async def test_every_example_is_solvable(server, row):
    async with rollout(server, **row) as attempt:
        await attempt.call("guess_number", number=row["hidden_number"])
        assert (await attempt.verify()).reward == 1.0


async def test_oracle_earns_reward_and_empty_answer_does_not(server, tmp_path):
    for row in read_rows(prepare(tmp_path / "rows.jsonl", count=30)):
        async with rollout(server, **row) as attempt:
            await attempt.send(solve(row)[0])
            assert (await attempt.verify()).reward == 1.0
        async with rollout(server, **row) as attempt:
            assert (await attempt.verify()).reward == 0.0
