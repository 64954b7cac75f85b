"""Tests of the rows of a dataset as a run reads them."""

from __future__ import annotations

import orjson
import pytest
from omegaconf import OmegaConf

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line
from nemo_gym.published.whole_config import run_of_config
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.tasks import TaskPlan

ADVICE = "Flatten the row, or write a part of it as text."


def plan_of(folder, *depths, **settings):
    rows = [{"responses_create_params": {"input": "x"}, "deep": nested(depth - 1)} for depth in depths]
    path = folder / "in.jsonl"
    path.write_bytes(b"".join(map(dump_line, rows)))
    return TaskPlan(
        path, CollectionSettings(output_jsonl_fpath=folder / "out.jsonl", agent_name="a"), ["a"], **settings
    )


def test_row_that_servers_would_reject_is_reported_with_its_line(tmp_path):
    assert [len(dump_line(task.fields)) > 200 for task in plan_of(tmp_path, 100).rows()] == [True]
    with pytest.raises(DataError) as refused:
        plan_of(tmp_path, 100, 101, 254).check()
    setting = "Or set max_request_depth, up to 200, in the blocks of its agent and resources server."
    problem = f"brackets nest more than 100 deep. {ADVICE} {setting}"
    assert str(refused.value) == f"{tmp_path}/in.jsonl:2: {problem} (and 1 more row)"


def test_servers_may_accept_rows_that_can_be_written_again(tmp_path):
    rules = TaskRules(depths={"a": 500})
    assert [len(dump_line(task.fields)) > 400 for task in plan_of(tmp_path, 200, rules=rules).rows()] == [True]
    with pytest.raises(DataError) as refused:
        plan_of(tmp_path, 200, 201, 254, rules=rules).check()
    assert str(refused.value) == f"{tmp_path}/in.jsonl:2: brackets nest more than 200 deep. {ADVICE} (and 1 more row)"


@pytest.mark.parametrize(
    ("agent", "server", "depth"), [(None, None, None), (150, None, 100), (150, 120, 120), (None, 50, 50)]
)
def test_depth_is_what_agent_and_resources_server_accept(agent, server, depth):
    def block(tier, limit, **more):
        return {tier: {"x": {"entrypoint": "app.py", **({"max_request_depth": limit} if limit else {}), **more}}}

    config = OmegaConf.create(
        {
            "a": block("responses_api_agents", agent, resources_server={"type": "resources_servers", "name": "r"}),
            "r": block("resources_servers", server),
        }
    )
    assert AddressBook.of_run(run_of_config(config)).task_rules.depths == ({} if depth is None else {"a": depth})


def nested(depth: int) -> object:
    return orjson.loads(b"[" * depth + b"]" * depth)
