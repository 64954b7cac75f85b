"""Finding the document in a response, its reward, and hostile documents."""

import asyncio
import json
from pathlib import Path

import pytest

from nemo_gym import InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout
from resources_servers.structured_outputs.app import SUBMIT, StructuredOutputsServer
from resources_servers.structured_outputs.oracle import solve

EXAMPLES = list(read_rows(Path(__file__).parent.parent / "data" / "example.jsonl"))
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
RIGHT = {
    "json": '{"n": 1, "s": "x"}',
    "yaml": "n: 1\ns: x",
    "xml": "<r><n>1</n><s>x</s></r>",
    "toml": 'n = 1\ns = "x"',
}
RIGHT["csv"] = "n,s\n1,x\n2,y"


def row(**fields):
    return {"schema_str": json.dumps(SCHEMA), "schema_type": "json", "response_mode": "text", **fields}


async def graded(row, *items, **settings):
    async with rollout(make_server(StructuredOutputsServer, **settings), **row) as attempt:
        return await attempt.verify(reply(*items))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda row: row["uuid"])
async def test_example_rewards_its_oracle_but_not_silence(example):
    right = await graded(example, *solve(example))
    assert (right.reward, right.error_type, right.error_message) == (1.0, None, None)
    assert (await graded(example, "")).reward == 0.0


def test_examples_cover_every_format_and_mode():
    assert {row["schema_type"] for row in EXAMPLES} == {"json", "yaml", "xml", "toml", "csv"}
    assert {row["response_mode"] for row in EXAMPLES} == {"text", "tool_call"}


@pytest.mark.parametrize("schema_type", RIGHT)
async def test_each_format_is_graded(schema_type):
    assert (await graded(row(schema_type=schema_type), RIGHT[schema_type])).reward == 1.0
    wrong = await graded(row(schema_type=schema_type), RIGHT[schema_type].replace("1", "true"))
    assert (wrong.reward, wrong.error_type) == (0.0, "schema_violation")


async def test_problem_is_reported():
    cases = [
        ("", "no_answer", "has no text"),
        (" \n", "no_answer", "has no text"),
        ("{", "parse_error", "not JSON"),
        ('```json\n{"n": 1, "s": "x"}\n```', "parse_error", "not JSON"),
        ('Here it is: {"n": 1, "s": "x"}', "parse_error", "not JSON"),
        ('{"n": "1", "s": "x"}', "schema_violation", "$.n: "),
        ('{"n": 1}', "schema_violation", "$: "),
        ('{"n": 1, "s": "x", "more": 2}', "schema_violation", "$: "),
        ("x" * 300_000, "too_large", "300000 characters"),
    ]
    wrong = []
    for text, error_type, message in cases:
        answer = await graded(row(), text)
        found = ((answer.reward, answer.error_type), answer.why.startswith(error_type) and message in answer.why)
        if found != ((0.0, error_type), True):
            wrong.append((text, error_type, message, found))
    assert wrong == []


async def test_only_the_last_message_counts():
    assert (await graded(row(), RIGHT["json"], "Done.")).reward == 0.0
    assert (await graded(row(), "First I think.", RIGHT["json"])).reward == 1.0


DEEP = '{"document":' * 300 + "1" + "}" * 300
IN_CALL = {"response_mode": "tool_call", "tool_name": "hand_in", "tool_payload_key": "document"}


def _raw_call(arguments):
    return call("hand_in").model_copy(update={"arguments": arguments})


async def test_document_is_found_in_tool_call():
    cases = [
        ({}, [call("hand_in", document={"n": 1, "s": "x"})], None),
        ({}, [call("hand_in", document=RIGHT["json"])], None),
        ({}, [call("hand_in", document={"n": 1})], "schema_violation"),
        ({}, [call("hand_in", document={"n": 1}), call("hand_in", document={"n": 1, "s": "x"})], None),
        ({}, [call("hand_in", document={"n": 1, "s": "x"}), call("hand_in", document={"n": 1})], "schema_violation"),
        ({}, [call("hand_in", n=1, s="x")], "no_answer"),
        ({}, [call("another", document={"n": 1, "s": "x"})], "no_answer"),
        ({}, [RIGHT["json"]], "no_answer"),
        ({}, [call("hand_in", document=None)], "schema_violation"),
        ({"tool_payload_key": None}, [call("hand_in", n=1, s="x")], None),
        ({"tool_name": None}, [call("another", document={"n": 1, "s": "x"})], None),
        ({"schema_type": "toml"}, [call("hand_in", document=RIGHT["toml"])], None),
        ({"schema_type": "csv"}, [call("hand_in", document=RIGHT["csv"])], None),
        ({"schema_type": "xml"}, [call("hand_in", document={"n": 1, "s": "x"})], "parse_error"),
        ({}, [_raw_call("{")], "parse_error"),
        ({}, [_raw_call("[]")], "no_answer"),
        ({}, [_raw_call("")], "parse_error"),
        ({}, [_raw_call('{"document": {"n": 1, "n": 2, "s": "x"}}')], "parse_error"),
        ({}, [_raw_call('{"document": {}, "document": {"n": 1, "s": "x"}}')], "parse_error"),
        ({"tool_payload_key": None}, [_raw_call('{"n": "x", "n": 1, "s": "x"}')], "parse_error"),
        ({}, [_raw_call('{"document": ' * 1000 + "1" + "}" * 1000)], "parse_error"),
        ({}, [_raw_call(DEEP)], "parse_error"),
    ]
    wrong = []
    for fields, items, error_type in cases:
        handed_in = await graded(row(**IN_CALL | fields), *items)
        found = (handed_in.error_type, handed_in.reward)
        if found != (error_type, float(error_type is None)):
            wrong.append((fields, items, error_type, found))
    assert wrong == []


@pytest.mark.parametrize("name", [SUBMIT, "a_tool_of_the_row"])
async def test_any_tool_name_can_be_called(name):
    async with rollout(make_server(StructuredOutputsServer), **row(**IN_CALL | {"tool_name": name})) as attempt:
        assert await attempt.call(name, document={"n": 1, "s": "x"}) == "Received."
        assert (await attempt.verify()).reward == 1.0


@pytest.mark.parametrize(("settings", "reward"), [({}, 1.0), ({"xml_coerce_types": False}, 0.0)])
async def test_xml_coerce_types_can_be_disabled(settings, reward):
    assert (await graded(row(schema_type="xml"), RIGHT["xml"], **settings)).reward == reward


@pytest.mark.parametrize("answer", [RIGHT["json"], "", "{", "x" * 300_000])
@pytest.mark.parametrize("schema", ["{", "[]", '{"type": "nope"}', '{"$ref": "file:///etc/passwd"}'])
async def test_invalid_schema_raises_invalid_task(schema, answer):
    with pytest.raises(InvalidTask, match="structured_outputs: schema_str: "):
        await graded(row(schema_str=schema), answer)


async def test_invalid_schema_is_reported_without_tool_call():
    with pytest.raises(InvalidTask, match="structured_outputs: schema_str: "):
        await graded(row(**IN_CALL, schema_str="{"), RIGHT["json"])


@pytest.mark.parametrize("schema_type", ["yaml", "toml", "csv", "xml"])
async def test_long_document_is_graded_in_a_worker(schema_type):
    long = {"n": 1, "s": "x" * 5_000}
    text = RIGHT[schema_type].replace("x", long["s"])
    assert (await graded(row(schema_type=schema_type), text)).reward == 1.0


@pytest.mark.slow
async def test_slow_document_earns_nothing():
    hostile = await graded(row(schema_type="toml"), "a." * 99_000 + "a = 1")
    assert (hostile.reward, hostile.error_type) == (0.0, "too_costly")


@pytest.mark.slow
async def test_slow_short_document_does_not_delay_others():
    node = {"$ref": "#/$defs/node"}
    kinds = [{"type": "object", "properties": {"in": node, **more}} for more in ({}, {"kind": {}})]
    recursive = {"$defs": {"node": {"anyOf": [*kinds, {"type": "null"}]}}, **node}
    nested = '{"in": ' * 40 + "1" + "}" * 40
    async with rollout(make_server(StructuredOutputsServer)) as attempt:
        hostile = asyncio.create_task(attempt.verify(reply(nested), **row(schema_str=json.dumps(recursive))))
        assert (await attempt.verify(reply(RIGHT["json"]), **row())).reward == 1.0
        assert not hostile.done()
        assert ((await hostile).reward, (await hostile).error_type) == (0.0, "too_costly")
        fine = await attempt.verify(reply('{"in": {"in": null}}'), **row(schema_str=json.dumps(recursive)))
    assert fine.reward == 1.0


async def test_reply_contains_the_row():
    fields = row(uuid="row-1", own=[1, None])
    answered = (await graded(fields, RIGHT["json"])).model_dump(mode="json")
    assert {name: answered[name] for name in fields} == fields
