"""The three components of the reward, and the other fields of the verify response."""

from pathlib import Path

import orjson
import pytest

from nemo_gym import BaseMultiRewardVerifyResponse, InvalidTask, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.example_tool_call_multireward.app import ToolCallServer
from resources_servers.example_tool_call_multireward.oracle import full_reward, solve
from resources_servers.example_tool_call_multireward.prepare import prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))

OSLO = {"name": "get_weather", "arguments": {"city": "Oslo", "unit": "celsius"}}
RIGHT = call("get_weather", city="Oslo", unit="celsius")


@pytest.fixture
def server():
    return make_server(ToolCallServer)


async def graded(server, *items, **row):
    async with rollout(server, **{"expected_call": OSLO, **row}) as attempt:
        return await attempt.verify(reply(*items))


def components(verified):
    assert verified.reward == sum(verified.reward_components.values())
    assert verified.reward_components == {
        "correctness": verified.correctness,
        "schema_valid": verified.schema_valid,
        "format": verified.format,
    }
    return verified.correctness, verified.schema_valid, verified.format


def written(arguments, name="get_weather"):
    return call(name).model_copy(update={"arguments": arguments})


async def test_components_are_earned_independently(server):
    cases = [
        ([RIGHT, "Cold."], (1, 1, 1)),
        ([RIGHT], (1, 1, 0)),
        ([RIGHT, " "], (1, 1, 0)),
        (["Cold.", RIGHT], (1, 1, 0)),
        ([RIGHT, RIGHT, "Cold."], (1, 1, 0)),
        ([call("get_weather", city="Rome"), RIGHT, "Cold."], (1, 1, 0)),
        ([call("get_weather", place="Oslo"), RIGHT, "Cold."], (1, 0, 0)),
        ([RIGHT, call("get_weather", city="Rome"), "Cold."], (0, 1, 0)),
        ([call("get_weather", city="Rome"), "Cold."], (0, 1, 1)),
        ([call("get_weather", city="Oslo", unit="kelvin"), "Cold."], (0, 0, 1)),
        ([call("get_weather", city="Oslo", unit="celsius", more=1), "Cold."], (0, 0, 1)),
        ([call("get_weather", city=1), "Cold."], (0, 0, 1)),
        ([call("plan_route", start="Oslo", destination="Rome"), "Cold."], (0, 1, 1)),
        ([call("no_such_tool", city="Oslo", unit="celsius"), "Cold."], (0, 0, 1)),
        ([written("{"), "Cold."], (0, 0, 0)),
        ([written("[]"), "Cold."], (0, 0, 0)),
        ([written("null"), "Cold."], (0, 0, 0)),
        ([written("NaN"), "Cold."], (0, 0, 0)),
        ([written('{"city": NaN}'), "Cold."], (0, 0, 0)),
        ([written('{"city": 1e999}'), "Cold."], (0, 0, 0)),
        ([written('{"city": "\\ud800"}'), "Cold."], (0, 0, 0)),
        ([written('{"city": ' + "9" * 5000 + "}"), "Cold."], (0, 0, 0)),
        ([written('{"city": ' + "[" * 100_000 + "}"), "Cold."], (0, 0, 0)),
        ([written('{"city": ' + "[" * 30 + "]" * 30 + "}"), "Cold."], (0, 0, 1)),
        ([written('{"city": ' + "[" * 300 + "]" * 300 + "}"), "Cold."], (0, 0, 0)),
        ([written(""), "Cold."], (0, 0, 1)),
        (["Cold."], (0, 0, 0)),
        ([""], (0, 0, 0)),
        ([], (0, 0, 0)),
    ]
    wrong = [
        (items, expected, found)
        for items, expected in cases
        if (found := components(await graded(server, *items))) != expected
    ]
    assert wrong == []


async def test_arguments_compare_as_json_including_defaults(server):
    cases = [
        ({"city": "Oslo"}, {"city": "Oslo", "unit": "celsius"}, 1),
        ({"city": "Oslo", "unit": "celsius"}, {"city": "Oslo"}, 1),
        ({"city": "Oslo", "unit": "fahrenheit"}, {"city": "Oslo"}, 0),
        ({"city": "Oslo"}, {"city": "oslo"}, 0),
        ({"city": 1}, {"city": 1.0}, 1),
        ({"city": 1}, {"city": True}, 0),
        ({"city": [1, {"a": None}]}, {"city": [1, {"a": None}]}, 1),
        ({"city": [1, 2]}, {"city": [2, 1]}, 0),
        ({"city": [1]}, {"city": [1, 1]}, 0),
        ({"city": {}}, {"city": {"a": 1}}, 0),
    ]
    wrong = []
    for expected, arguments, correctness in cases:
        verified = await graded(
            server, call("get_weather", **arguments), expected_call={"name": "get_weather", "arguments": expected}
        )
        if (found := verified.correctness) != correctness:
            wrong.append((expected, arguments, correctness, found))
    assert wrong == []


async def test_verify_response_contains_row_calls_and_components(server):
    verified = await graded(server, written("{"), RIGHT, "Cold.", own=[1])
    assert verified.predicted_calls == [{"name": "get_weather", "arguments": "{"}, OSLO]
    assert (verified.own, verified.expected_call) == ([1], OSLO)
    assert BaseMultiRewardVerifyResponse.model_validate(verified.model_dump()).reward_components["correctness"] == 1.0


def tools(parameters):
    tool = {"type": "function", "name": "count", "parameters": parameters}
    return {"responses_create_params": {"input": [], "tools": [tool, {"type": "web_search"}]}}


async def test_row_tools_use_their_own_schema(server):
    row = {**tools({"type": "object", "properties": {"to": {"type": "integer"}}}), "expected_call": {"name": "count"}}
    assert components(await graded(server, call("count", to=3), "Done.", **row)) == (0, 1, 1)
    assert components(await graded(server, call("count", to="3"), "Done.", **row)) == (0, 0, 1)
    assert components(await graded(server, call("count"), "Done.", **row)) == (1, 1, 1)


@pytest.mark.parametrize("items", [[call("count"), "Done."], [RIGHT, "Done."], [""]])
async def test_invalid_tool_schema_fails_the_rollout(server, items):
    with pytest.raises(InvalidTask, match="the parameters of the row's tool 'count' are not a JSON Schema"):
        await graded(server, *items, **tools({"type": "many"}))


@pytest.mark.parametrize("items", [[call("get_wether"), "Done."], [""]])
async def test_unknown_expected_tool_fails_the_rollout(server, items):
    with pytest.raises(InvalidTask, match=r"expected_call: 'get_wether' is not a tool\. The tools are get_weather, "):
        await graded(server, *items, expected_call={"name": "get_wether"})


async def test_property_schema_may_be_true(server):
    row = {**tools({"type": "object", "properties": {"to": True}}), "expected_call": {"name": "count"}}
    assert components(await graded(server, call("count"), "Done.", **row)) == (1, 1, 1)


async def test_oracle_earns_full_reward_and_silence_none(server, tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 30))]
    assert {row["expected_call"]["name"] for row in rows} == {tool.name for tool in server.tools()}
    for row in rows:
        async with rollout(server, **row) as attempt:
            wanted, said = solve(row)
            answer = await attempt.send(wanted)
            assert not answer.startswith(("Error", "Invalid"))
            assert (await attempt.verify(reply(wanted, said))).reward == full_reward(row) == 3.0
            assert (await attempt.verify(reply(""))).reward == 0.0


async def test_the_tools_answer(server):
    async with rollout(server) as attempt:
        assert await attempt.call("get_weather", city="Oslo") == "23 °C"
        assert await attempt.call("get_weather", city="Oslo", unit="fahrenheit") == "73.4 °F"
        money = await attempt.call("convert_currency", amount=10, source="USD", target="EUR")
        assert orjson.loads(money) == {"amount": 8.0}
        route = await attempt.call("plan_route", start="Graz", destination="Linz", avoid=["tolls"])
        assert orjson.loads(route) == {"start": "Graz", "destination": "Linz", "minutes": 35}
        assert "Invalid arguments" in await attempt.call("convert_currency", amount=-1, source="USD", target="GBP")


async def test_key_metrics_are_the_reward_and_its_components(server):
    rows = [
        {"_ng_task_index": task, "reward": 1.0 + task, "correctness": task, "schema_valid": 1.0, "format": 0.0, "n": 7}
        for task in range(2)
    ]
    async with serving(server) as client:
        metrics = (await client.post("/aggregate_metrics", json={"verify_responses": rows})).json()
    assert metrics["key_metrics"] == {
        "mean/reward": 1.5,
        "mean/correctness": 0.5,
        "mean/schema_valid": 1.0,
        "mean/format": 0.0,
    }


def test_rows_depend_only_on_the_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert first.count(b"\n") == 9
