"""Pictures reach a model endpoint without loss: one that sees them earns every reward, in both dialects."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from nemo_gym.jsonl import read_rows
from resources_servers.visual_reasoning.prepare import KINDS, prepare
from tests.end_to_end.behind_endpoint import collect_behind

pytestmark = pytest.mark.slow

WATCHER = Path(__file__).parents[2] / "resources_servers" / "visual_reasoning" / "tests" / "watcher.py"
ENVIRONMENT = "resources_servers/visual_reasoning/configs/visual_reasoning.yaml"
AGENT = {"agent_ref": {"type": "responses_api_agents", "name": "visual_reasoning_simple_agent"}}
READABLE = {"count_shapes", "clock", "gauge", "bar_chart", "point", "maze", "zoom"}
EACH = 3


@pytest.fixture(scope="module")
def rows(shared_workplace):
    """A file of rows that name their pictures."""
    path = shared_workplace.folder / "in" / "pictures.jsonl"
    made = read_rows(prepare(path, EACH * len(KINDS)))
    kept = [{**AGENT, **row} for row in made if row["subset"] in READABLE]
    for row in kept:
        if row["subset"] == "zoom":
            row["responses_create_params"]["user"] = row["expected_answer"]
    path.write_bytes(b"\n".join(map(orjson.dumps, kept)))
    return path


@pytest.fixture(scope="module")
def collect(shared_workplace, run_endpoint, rows):
    """Return a function that collects the rows with a model server in front of the watcher."""

    def collected(model_server):
        return collect_behind(shared_workplace, run_endpoint(WATCHER), model_server, ENVIRONMENT, rows)

    return collected


@pytest.mark.parametrize("model_server", ["openai_model", "vllm_model"])
def test_every_pixel_arrives_at_the_endpoint(collect, model_server):
    scored, failed = collect(model_server)
    assert failed == []
    assert len(scored) == EACH * len(READABLE)
    assert [row["subset"] for row in scored if row["reward"] != 1.0] == []
    for row in scored:
        # The picture of the row, and for a board the part that the tool showed.
        assert orjson.dumps(row).count(b"data:image/png;base64,") == 1 + (row["subset"] == "zoom")
