"""The weather, and the tool call and the last message that earn the reward."""

from pathlib import Path

import pytest
import pytest_asyncio

from nemo_gym import DataError, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.example_mcp_weather.app import COLDEST, SKIES, WARMEST, McpWeatherServer, Weather, weather_in
from resources_servers.example_mcp_weather.oracle import solve
from resources_servers.example_mcp_weather.prepare import CITIES, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))

OSLO = weather_in("Oslo")
RIGHT = call("get_weather", city="Oslo")
REPORT = f"Oslo has {OSLO}."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """One server for all tests, because each start builds the MCP schemas of its tools."""
    started = make_server(McpWeatherServer)
    async with serving(started):
        yield started


async def graded(server, *items, city="Oslo", **row):
    async with rollout(server, verifier_metadata={"expected_city": city}, **row) as attempt:
        return await attempt.verify(reply(*items))


def written(arguments, name="get_weather"):
    return call(name).model_copy(update={"arguments": arguments})


async def test_call_for_the_rows_city_is_required(server):
    cases = [
        (RIGHT, True),
        (call("get_weather", city=" oSLO "), True),
        (call("mcp__example_mcp_weather__get_weather", city="Oslo"), True),
        (call("mcp__another_server__get_weather", city="Oslo"), False),
        (call("get_weather", city="Rome"), False),
        (call("get_weather", place="Oslo"), False),
        (call("get_weather", city=["Oslo"]), False),
        (call("look", city="Oslo"), False),
        (written("{"), False),
        (written("[]"), False),
        (written('"Oslo"'), False),
        (written(""), False),
    ]
    wrong = []
    for wanted, is_seen in cases:
        verified = await graded(server, wanted, REPORT)
        found = ((verified.tool_call_seen, verified.final_response_mentions_weather), verified.reward)
        if found != ((is_seen, True), float(is_seen)):
            wrong.append((wanted, is_seen, found))
    assert wrong == []


async def test_one_call_among_others_is_enough(server):
    assert (await graded(server, call("get_weather", city="Rome"), RIGHT, REPORT)).reward == 1.0


async def test_last_message_must_contain_sky_and_temperature(server):
    cases = [
        ("Oslo", "{0} degrees and {1}", True),
        ("Oslo", "**{2}**, {0}°C.", True),
        ("Oslo", "{1}", False),
        ("Oslo", "{0} degrees", False),
        ("Oslo", "{1}, 1{0}", False),
        ("Oslo", "{1}, {0}.5", False),
        ("Oslo", "{1}, {0}0", False),
        ("Oslo", "un{1}ish, {0}", False),
        ("Oslo", "<think>{1}, {0}</think> I do not know.", False),
        ("Oslo", "<think>hm</think> {1}, {0}", True),
        ("Oslo", "", False),
    ]
    wrong = []
    for city, text, is_mentioned in cases:
        weather = weather_in(city)
        said = text.format(weather.degrees, weather.sky, weather.sky.upper())
        verified = await graded(server, call("get_weather", city=city), said, city=city)
        found = (
            verified.expected_weather,
            (verified.tool_call_seen, verified.final_response_mentions_weather),
            verified.reward,
        )
        if found != (str(weather), (True, is_mentioned), float(is_mentioned)):
            wrong.append((city, text, is_mentioned, found))
    assert wrong == []


async def test_only_the_last_message_counts(server):
    assert (await graded(server, RIGHT, REPORT, "Anything else?")).final_response_mentions_weather is False


@pytest.mark.parametrize("sign", ["-", "\N{MINUS SIGN}"])
async def test_negative_temperature_needs_its_sign(server, sign):
    city = next(f"Place {number}" for number in range(1000) if weather_in(f"Place {number}").degrees < 0)
    sky, degrees = weather_in(city)
    wanted = call("get_weather", city=city)
    assert (await graded(server, wanted, f"{sky}, {sign}{-degrees}°C", city=city)).reward == 1.0
    assert (await graded(server, wanted, f"{sky}, {-degrees}°C", city=city)).reward == 0.0


def test_weather_differs_between_cities():
    found = {weather_in(f"Place {number}") for number in range(5000)}
    assert {sky for sky, _ in found} == set(SKIES)
    assert {degrees for _, degrees in found} == set(range(COLDEST, WARMEST + 1))
    assert weather_in(" new  YORK") == weather_in("New York")
    assert str(Weather("hazy", 3)) == "hazy, 3 degrees Celsius"


async def test_tool_answers_for_any_city(server):
    async with rollout(server) as attempt:
        assert await attempt.call("get_weather", city="Oslo") == f"The weather in Oslo: {OSLO}."
        assert "degrees Celsius" in await attempt.call("get_weather", city="")
        assert (await attempt.call("get_weather", city=1)).startswith("Invalid arguments for get_weather")


async def test_graded_row_keeps_the_models_tool_name(server):
    verified = await graded(server, call("mcp__example_mcp_weather__get_weather", city="Oslo"), REPORT, own=[1])
    assert verified.response.tool_calls[0].name == "mcp__example_mcp_weather__get_weather"
    assert (verified.own, verified.verifier_metadata) == ([1], {"expected_city": "Oslo"})


async def test_row_without_a_city_is_rejected(server):
    async with rollout(server) as attempt:
        with pytest.raises(DataError, match="verifier_metadata"):
            await attempt.verify(reply(REPORT))


async def test_oracle_earns_full_reward_and_silence_none(server, tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 30))]
    for row in rows:
        async with rollout(server, **row) as attempt:
            wanted, said = solve(row)
            answer = await attempt.send(wanted)
            assert str(weather_in(row["verifier_metadata"]["expected_city"])) in answer
            assert (await attempt.verify(reply(wanted, said))).reward == 1.0
            assert (await attempt.verify(reply(""))).reward == 0.0


def test_rows_depend_only_on_the_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "40", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    rows = list(read_rows(paths[0]))
    assert len(rows) == 40
    assert {row["verifier_metadata"]["expected_city"] for row in rows} <= set(CITIES)
