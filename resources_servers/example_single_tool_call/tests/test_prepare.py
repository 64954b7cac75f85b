"""Generated rows are solvable and depend only on the seed."""

from pathlib import Path

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, rollout
from resources_servers.example_single_tool_call.app import WeatherServer
from resources_servers.example_single_tool_call.oracle import solve
from resources_servers.example_single_tool_call.prepare import CITIES, INSTRUCTION, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


def test_generated_row_asks_about_a_city(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 50)))
    assert {row["responses_create_params"]["input"][0]["content"] for row in [*rows, *EXAMPLES]} == {INSTRUCTION}
    for row in rows:
        question = row["responses_create_params"]["input"][1]["content"]
        assert any(city in question for city in CITIES)
        assert "{" not in question


async def test_oracle_solves_generated_rows(tmp_path):
    server = make_server(WeatherServer)
    for row in read_rows(prepare(tmp_path / "rows.jsonl", 10)):
        async with rollout(server, **row) as attempt:
            for item in solve(row)[:-1]:
                assert "cold" in await attempt.send(item)
            assert (await attempt.verify()).reward == 1.0


def test_rows_depend_only_on_the_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
