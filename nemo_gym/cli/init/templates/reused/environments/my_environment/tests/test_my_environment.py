"""Tests of the rows: the server accepts each of them and grades an answer to it."""

import math
from pathlib import Path

import pytest

from nemo_gym.contract import open_environment
from nemo_gym.testing import reply, rollout

FOLDER = Path(__file__).parents[1]


@pytest.mark.asyncio
async def test_each_example_is_graded():
    with open_environment(FOLDER) as environment:
        server, declared = environment.server(), environment.declared_reward
        assert environment.rows
        for row in environment.rows:
            async with rollout(server, **row) as attempt:
                graded = await attempt.verify(reply("I do not know."))
            assert math.isfinite(graded.reward)
            assert declared.problem_of(graded.reward) is None
