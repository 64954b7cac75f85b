"""The results of all rollouts are aggregated by one request, which may be larger than others."""

from __future__ import annotations

import orjson
import pytest

from tests.conftest import PLAIN_SERVER
from tests.rows import rows_of

pytestmark = pytest.mark.slow

ROWS = 60
ROW = {"responses_create_params": {"input": "x"}, "note": "x" * 1000}
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


@pytest.fixture
def collect(workplace):
    """Return a function that collects 60 rollouts of about 1,000 bytes each, with a limit on requests to a server."""
    workplace.environment("plain", PLAIN_SERVER)
    workplace.write("rows.jsonl", f"{orjson.dumps(ROW).decode()}\n" * ROWS)
    configs = f"resources_servers/plain/configs/plain.yaml,{workplace.agent()},{MODEL}"

    def collect(server, limit):
        return workplace.run(
            "ng_e2e_collect_rollouts", f"+config_paths=[{configs}]", "+split=example", "+output_jsonl_fpath=out.jsonl",
            "+head_server.port=0", "+overwrite=true", f"++{server}.max_request_bytes={limit}",
        )  # fmt: skip

    return collect


def test_request_with_all_results_may_be_larger(collect, workplace):
    finished = collect("plain_agent.responses_api_agents.simple_agent", 10_000)
    assert finished.code == 0, finished.err
    (metrics,) = orjson.loads((workplace.folder / "out_aggregate_metrics.json").read_bytes())
    assert metrics["agent_metrics"]["mean/reward"] == 1


@pytest.mark.parametrize(
    "server",
    ["plain_agent.responses_api_agents.simple_agent", "plain.resources_servers.plain"],
    ids=["agent", "server"],
)
def test_too_large_results_are_kept_and_reported(collect, workplace, server):
    finished = collect(server, 4_000)
    assert finished.code == 1
    assert "Error: the rollouts are saved in out.jsonl, but plain_agent did not return metrics: " in finished.err
    assert "(max_request_bytes)" in finished.err
    assert "Set a larger max_request_bytes for the agent and for its resources server, start them" in finished.err
    assert len(rows_of(workplace.folder / "out.jsonl")) == ROWS
