"""Tests of the prepared rows: each is solvable, and the same seed makes the same rows."""

from pathlib import Path

import pytest

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, rollout
from resources_servers.my_environment.app import MyEnvironmentServer
from resources_servers.my_environment.oracle import solve
from resources_servers.my_environment.prepare import INSTRUCTION, prepare

EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"


@pytest.mark.asyncio
async def test_oracle_earns_reward_and_empty_answer_does_not(tmp_path):
    server = make_server(MyEnvironmentServer)
    for row in read_rows(prepare(tmp_path / "rows.jsonl", count=30)):
        async with rollout(server, **row) as attempt:
            await attempt.send(solve(row)[0])
            assert (await attempt.verify()).reward == 1.0
        async with rollout(server, **row) as attempt:
            assert (await attempt.verify()).reward == 0.0


def test_prepared_rows_have_the_format_of_examples(tmp_path):
    rows = [*read_rows(EXAMPLES), *read_rows(prepare(tmp_path / "rows.jsonl", count=30))]
    assert {row["responses_create_params"]["input"][0]["content"] for row in rows} == {INSTRUCTION}
    assert {tuple(row) for row in rows} == {("responses_create_params", "hidden_number", "max_guesses")}


def test_rows_depend_only_on_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
