"""`run_from_config`: the steps that published folders call, override, or replace by mocks."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import DataError, ServerLost
from nemo_gym.jsonl import read_rows
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient

CONFIG_OF = "nemo_gym.rollout_collection.get_global_config_dict"


@pytest.fixture
def config(agent):
    """The configuration of this process, which only has the address of the head server."""
    known = OmegaConf.create({"head_server": {"host": "127.0.0.1", "port": agent.port}})
    with patch(CONFIG_OF, return_value=known) as asked:
        yield asked


@pytest.fixture
def job(tmp_path, write_tasks, make_task):
    def make(count=3, rows=None, **settings):
        path = write_tasks([make_task(number) for number in range(count)] if rows is None else rows)
        output = tmp_path / "results" / "out.jsonl"
        defaults = {"agent_name": "sound", "input_jsonl_fpath": path, "output_jsonl_fpath": output}
        return RolloutCollectionConfig(**(defaults | settings))

    return make


class Mock:
    """A client with nothing but `post`, whose replies have a reward."""

    def __init__(self):
        self.sent = []

    async def post(self, server_name, url_path, json):
        self.sent.append((server_name, url_path, json))
        return SimpleNamespace(ok=True, status=200, read=lambda: self._body(json))

    async def _body(self, row):
        return json.dumps({**row, "reward": 0.5}).encode()


class Mocked(RolloutCollectionHelper):
    def setup_server_client(self, head_server_config=None):
        return MOCK


MOCK = Mock()


@pytest.fixture
def mock():
    MOCK.sent.clear()
    return MOCK


def keys(rows):
    return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)


async def test_mock_client_gets_every_row(job, mock):
    with patch(CONFIG_OF, return_value={}) as asked:
        results = await Mocked().run_from_config(job(2, num_repeats=2, disable_aggregation=True))
    assert asked.called
    assert {(server, path) for server, path, _ in mock.sent} == {("sound", "/run")}
    assert keys(row for *_, row in mock.sent) == keys(results) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["reward"] for row in results] == [0.5] * 4


async def test_replaced_post_of_a_client_sends_rows(job, config):
    sent = []

    class Watched(ServerClient):
        async def post(self, server_name, url_path, **kwargs):
            sent.append((server_name, url_path, kwargs))
            return await super().post(server_name, url_path, **kwargs)

    class Helper(RolloutCollectionHelper):
        def setup_server_client(self, head_server_config=None):
            return Watched.load_from_global_config(super().setup_server_client().head_server_config)

    results = await Helper().run_from_config(job(2, disable_aggregation=True))
    assert len(results) == 2
    assert [path for _, path, _ in sent] == ["/run"] * 2
    assert [list(kwargs) for *_, kwargs in sent] == [["json"]] * 2
    assert keys(kwargs["json"] for *_, kwargs in sent) == [(0, 0), (1, 0)]


async def test_preprocessing_returns_the_rows_to_send(job, config, tmp_path, agent):
    (tmp_path / "prompt.yaml").write_text("user: 'Say {number}.'\n")
    rows = [{"number": number} for number in range(3)]
    settings = {"prompt_config": str(tmp_path / "prompt.yaml"), "responses_create_params": {"temperature": 0.5}}
    found = RolloutCollectionHelper()._preprocess_rows_from_config(
        job(rows=rows, limit=2, num_repeats=2, num_repeats_add_seed=True, **settings)
    )
    assert keys(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {row["agent_ref"]["name"] for row in found} == {"sound"}
    params = found[3]["responses_create_params"]
    assert (params["input"][0]["content"], params["temperature"]) == ("Say 1.", 0.5)
    assert json.loads(params["metadata"]["extra_body"]) == {"seed": 1}
    assert agent.state()["begun"] == []


class Filtering(RolloutCollectionHelper):
    def _preprocess_rows_from_config(self, config):
        rows = super()._preprocess_rows_from_config(config)
        return [row | {"earns": 0.25} for row in rows if row["_ng_task_index"] != 1]


async def test_overridden_preprocessing_changes_the_run(job, config, agent):
    results = await Filtering().run_from_config(job(num_repeats=2))
    assert keys(results) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert {row["reward"] for row in results} == {0.25}
    assert sorted(agent.state()["begun"]) == ["0-0", "0-1", "2-0", "2-1"]


async def test_rows_changed_in_place_are_sent(job, config):
    class Marking(RolloutCollectionHelper):
        def _preprocess_rows_from_config(self, config):
            rows = super()._preprocess_rows_from_config(config)
            rows[0]["earns"] = 0.25
            return rows

    results = await Marking().run_from_config(job(2))
    assert {row["number"]: row["reward"] for row in results} == {0: 0.25, 1: 1.0}


async def test_run_with_overridden_rows_is_resumed(job, config, agent):
    await Filtering().run_from_config(job())
    begun = agent.state()["begun"]
    results = await Filtering().run_from_config(job(num_repeats=2, resume_from_cache=True))
    assert keys(results) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert sorted(agent.state()["begun"][len(begun) :]) == ["0-1", "2-1"]


async def test_reordered_input_is_resumed_by_content(job, config, agent, make_task):
    await RolloutCollectionHelper().run_from_config(job(rows=[make_task(0), make_task(1)]))
    rows = [make_task(number) for number in (1, 5, 0)]
    results = await RolloutCollectionHelper().run_from_config(job(rows=rows, resume_from_cache=True))
    assert {row["_ng_task_index"]: row["number"] for row in results} == {0: 0, 1: 1, 2: 5}
    assert len(agent.state()["begun"]) == 3


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "no rows"),
        ([{"agent_ref": {"name": "sound"}}], "row 0 lacks _ng_task_index"),
        ([{"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "sound"}}] * 2, "row 1 has the same"),
        ([{"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "soond"}}], "Did you mean 'sound'"),
    ],
)
async def test_impossible_rows_of_an_override_are_rejected(job, config, agent, rows, problem):
    class Helper(RolloutCollectionHelper):
        def _preprocess_rows_from_config(self, config):
            return rows

    with pytest.raises(DataError, match=problem):
        await Helper().run_from_config(job())
    assert agent.state()["begun"] == []


async def test_aggregation_can_be_called_alone(config, agent, tmp_path):
    rows = [{"_ng_task_index": n, "_ng_rollout_index": 0, "agent_ref": {"name": "sound"}} for n in range(2)]
    results = [{"_ng_task_index": n, "_ng_rollout_index": 0, "reward": float(n)} for n in range(2)]
    path = await RolloutCollectionHelper()._call_aggregate_metrics(results, rows, tmp_path / "mine.jsonl")
    assert path == tmp_path / "mine_aggregate_metrics.json"
    (metrics,) = json.loads(path.read_bytes())
    assert metrics["agent_metrics"]["mean/reward"] == 0.5
    assert await RolloutCollectionHelper()._call_aggregate_metrics([], [], tmp_path / "none.jsonl") is None


async def test_overridden_aggregation_replaces_the_metrics(job, config, agent):
    seen = []

    class Best(RolloutCollectionHelper):
        async def _call_aggregate_metrics(self, results, rows, output_path):
            seen.append([(result["number"], row["number"]) for result, row in zip(results, rows, strict=True)])
            best = [result for result in results if result["number"]]
            return await super()._call_aggregate_metrics(best, rows[: len(best)], output_path)

    made = job(rows=[{"responses_create_params": {"input": "x"}, "number": n, "earns": float(n)} for n in range(3)])
    await Best().run_from_config(made)
    (pairs,) = seen
    assert sorted(pairs) == [(0, 0), (1, 1), (2, 2)]
    (metrics,) = json.loads(made.output_jsonl_fpath.with_name("out_aggregate_metrics.json").read_bytes())
    assert metrics["agent_metrics"]["mean/reward"] == 1.5
    assert "ledger" not in metrics


async def test_failures_and_ledger_are_kept(job, config, make_task):
    made = job(rows=[make_task(0), make_task(1, act="crash")], max_attempts=1)
    results = await RolloutCollectionHelper().run_from_config(made)
    assert [row["number"] for row in results] == [0]
    (failed,) = read_rows(made.output_jsonl_fpath.with_name("out_failures.jsonl"))
    assert failed["_ng_failure_class"] == "agent_failed"
    (metrics,) = json.loads(made.output_jsonl_fpath.with_name("out_aggregate_metrics.json").read_bytes())
    assert (metrics["ledger"]["planned"], metrics["ledger"]["scored"]) == (2, 1)


@pytest.mark.parametrize(
    ("trouble", "settings", "outcome"),
    [("lost", {}, [0.5]), ("silent", {"rollout_timeout_s": 0.1}, ["timeout"])],
)
async def test_trouble_of_a_mock_is_handled(job, trouble, settings, outcome):
    class Troubled(Mock):
        async def post(self, server_name, url_path, json):
            if trouble == "silent":
                await asyncio.Event().wait()
            if not self.sent:
                self.sent.append(json)
                raise ServerLost("the connection was closed")
            return await super().post(server_name, url_path, json)

    made = job(1, retry_pause_s=0, disable_aggregation=True, **settings)
    helper, client = RolloutCollectionHelper, Troubled()
    with patch(CONFIG_OF, return_value={}), patch.object(helper, "setup_server_client", return_value=client):
        results = await helper().run_from_config(made)
    failed = list(read_rows(made.output_jsonl_fpath.with_name("out_failures.jsonl")))
    assert ([row["reward"] for row in results] or [row["_ng_failure_class"] for row in failed]) == outcome
