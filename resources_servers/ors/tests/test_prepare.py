"""Rows from the task list of an ORS server, and the settings of its address."""

import asyncio
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.ors.app import OrsServer
from resources_servers.ors.prepare import prepare
from resources_servers.ors.tests.stub import says, status, stub


async def test_rows_are_made_from_the_servers_tasks(tmp_path):
    async with stub() as (seen, address):
        made = await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", address, None, 2)
        assert [row["ors"] for row in read_rows(made)] == [
            {"split": "train", "index": 0},
            {"split": "train", "index": 1},
        ]
        assert seen.asked("delete") == seen.asked("create") == 2
    listed = {"num_tasks": status(501), "tasks": says({"tasks": [{"a": 1}, {"a": 2}]})}
    async with stub(**listed, create=says({})) as (_, address):
        made = await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", address, "validation")
        assert [row["ors"] for row in read_rows(made)] == [{"task_spec": {"a": 1}}, {"task_spec": {"a": 2}}]


@pytest.mark.parametrize(
    ("faults", "split", "problem"),
    [
        ({}, "tset", "--split tset: the server's splits are: train, validation, example."),
        ({"splits": says([])}, None, "the server's splits are: none"),
        ({"splits": status(501)}, None, "answered 501: no. Check that the server runs"),
        ({"task_tools": status(500)}, None, "GET /number/task_tools: answered 500"),
    ],
)
async def test_unusable_task_list_is_reported(faults, split, problem, tmp_path):
    async with stub(**faults) as (seen, address):
        with pytest.raises(DataError) as raised:
            await asyncio.to_thread(prepare, tmp_path / "rows.jsonl", address, split, 20)
        assert problem in str(raised.value)
        assert seen.asked("delete") == seen.asked("create")
    assert not (tmp_path / "rows.jsonl").exists()


def test_examples_are_the_split_of_that_name(tmp_path):
    made = prepare(tmp_path / "rows.jsonl", split="example", count=5)
    assert made.read_bytes() == (Path(__file__).parents[1] / "data" / "example.jsonl").read_bytes()


def test_settings_are_checked_without_quoting_secrets():
    with pytest.raises(DataError, match="not a JSON object") as raised:
        make_server(OrsServer, secrets="hunter22")
    assert "hunter22" not in str(raised.value)
    with pytest.raises(DataError, match="is not a URL"):
        make_server(OrsServer, address="localhost:8080/env")
