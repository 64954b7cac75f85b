"""Rows that are made: always the same for a seed, and each of them can be solved."""

from pathlib import Path

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, rollout
from resources_servers.example_single_tool_call.app import WeatherServer
from resources_servers.example_single_tool_call.oracle import solve
from resources_servers.example_single_tool_call.prepare import CITIES, INSTRUCTION, main, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


def test_a_made_row_asks_of_a_city_as_the_examples_do(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 50)))
    assert {row["responses_create_params"]["input"][0]["content"] for row in [*rows, *EXAMPLES]} == {INSTRUCTION}
    for row in rows:
        asked = row["responses_create_params"]["input"][1]["content"]
        assert any(city in asked for city in CITIES)
        assert "{" not in asked


async def test_an_attempt_at_a_made_row_is_rewarded(tmp_path):
    server = make_server(WeatherServer)
    for row in read_rows(prepare(tmp_path / "rows.jsonl", 10)):
        async with rollout(server, **row) as attempt:
            for item in solve(row)[:-1]:
                assert "cold" in await attempt.send(item)
            assert (await attempt.verify()).reward == 1.0


def test_the_same_seed_makes_the_same_rows_and_another_one_others(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        assert main(["--output", str(path), "--count", "9", "--seed", seed]) == 0
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
