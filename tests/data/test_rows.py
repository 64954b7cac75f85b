"""Tests of the rows of a dataset as a run reads them."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.tasks import TaskPlan


def test_deeply_nested_row_is_reported_with_its_line(tmp_path):
    def plan_of(*depths: int) -> TaskPlan:
        rows = [{"responses_create_params": {"input": "x"}, "deep": nested(depth - 1)} for depth in depths]
        path = tmp_path / "in.jsonl"
        path.write_bytes(b"".join(map(dump_line, rows)))
        return TaskPlan(path, CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl", agent_name="a"), ["a"])

    assert [len(dump_line(task.fields)) > 400 for task in plan_of(200).rows()] == [True]
    with pytest.raises(DataError) as refused:
        plan_of(200, 201, 254).check()
    problem = "brackets nest more than 200 deep. Flatten the row, or write a part of it as text."
    assert str(refused.value) == f"{tmp_path}/in.jsonl:2: {problem} (and 1 more row)"


def nested(depth: int) -> object:
    return orjson.loads(b"[" * depth + b"]" * depth)
