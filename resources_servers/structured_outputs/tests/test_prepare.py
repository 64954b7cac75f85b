"""Generated rows: the same for a seed, and solvable."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.structured_outputs.app import SUBMIT as ROUTE
from resources_servers.structured_outputs.app import StructuredOutputsServer
from resources_servers.structured_outputs.documents import value_for, written
from resources_servers.structured_outputs.grading import first_problem
from resources_servers.structured_outputs.oracle import solve
from resources_servers.structured_outputs.prepare import FORMATS, MODES, SUBMIT, THINGS, prepare

FOLDER = Path(__file__).resolve().parents[1]


async def test_every_row_rewards_its_oracle_only(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=60, seed=3)))
    assert {(row["schema_type"], row["response_mode"]) for row in rows} == {(f, m) for f in FORMATS for m in MODES}
    server = make_server(StructuredOutputsServer)
    for row in rows:
        for items, reward in ((solve(row), 1.0), ([""], 0.0)):
            async with rollout(server, **row) as attempt:
                graded = await attempt.verify(reply(*items))
            assert graded.reward == reward, (row, items, graded.error_message)


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again, other = (
        prepare(tmp_path / f"{name}.jsonl", count=20, seed=seed).read_bytes()
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first == again != other


def test_tool_of_the_rows_has_a_route():
    assert SUBMIT == ROUTE


@pytest.mark.parametrize("thing", THINGS)
def test_every_thing_has_a_conforming_description(thing):
    schema = {"type": "object", "properties": THINGS[thing]}
    jsonschema_rs.validator_for(schema).validate(value_for(schema))
    for format_ in ("json", "yaml", "xml", "toml"):
        assert first_problem(written(value_for(schema), format_), format_, json.dumps(schema)) is None


def test_value_for_a_schema_conforms():
    cases = [
        {"type": "integer", "minimum": 3, "multipleOf": 5},
        {"type": "integer", "maximum": -3},
        {"type": "integer", "exclusiveMinimum": 3, "maximum": 4},
        {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "number", "maximum": -1},
        {"type": "number", "multipleOf": 2, "minimum": 3},
        {"type": "string", "minLength": 100},
        {"type": "string", "maxLength": 2},
        {"type": ["null", "boolean"]},
        {"type": "null"},
        {"const": {"a": 1}},
        {"enum": [None, "b"]},
        {"oneOf": [{"type": "null"}, {"type": "integer"}]},
        {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "boolean"}}},
        {"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {"type": "string"}}},
    ]
    wrong = [
        (schema, found)
        for schema in cases
        if (found := first_problem(written(value_for(schema), "json"), "json", json.dumps(schema))) is not None
    ]
    assert wrong == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"])))
def test_any_text_can_be_written_in_every_format(text):
    schema = {"type": "object", "properties": {"text": {"const": text.strip()}, "more": {"const": 1}}}
    for format_ in FORMATS:
        assert first_problem(written({"text": text.strip(), "more": 1}, format_), format_, json.dumps(schema)) is None


def test_command_of_the_readme_works(tmp_path):
    command = [sys.executable, str(FOLDER / "prepare.py"), "--count", "7", "--seed", "1", "--output", "rows.jsonl"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 7
