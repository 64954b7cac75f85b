"""Generated rows are solvable and depend only on the seed."""

from pathlib import Path

import pytest

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.example_session_state_mgmt.app import CounterServer
from resources_servers.example_session_state_mgmt.oracle import solve
from resources_servers.example_session_state_mgmt.prepare import INSTRUCTION, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


@pytest.mark.slow
async def test_generated_rows_reward_the_oracle_but_not_silence(tmp_path):
    server = make_server(CounterServer)
    for row in read_rows(prepare(tmp_path / "rows.jsonl", 60)):
        async with rollout(server, **row) as attempt:
            for item in solve(row)[:-1]:
                await attempt.send(item)
            assert (await attempt.verify()).reward == 1.0
        async with rollout(server, **row) as attempt:
            assert (await attempt.verify(reply(""))).reward == 0.0


def test_generated_rows_have_the_examples_format(tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 20))]
    assert {row["responses_create_params"]["input"][0]["content"] for row in rows} == {INSTRUCTION}
    assert {tuple(row) for row in rows} == {tuple(EXAMPLES[0])}


def test_rows_depend_only_on_the_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
