"""Tests that no row or result destroys the metrics of its agent's run, and that missing metrics are an error."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.http.json_depth import DEEPEST_ROW

pytestmark = pytest.mark.slow

SERVER = """
import orjson

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


RESULTS = {
    "plain": {},
    "at the limit": {"score": nested(DEEPEST_ROW - 1)},
    "just below": {"score": nested(DEEPEST_ROW - 2)},
    "above requests": {"score": nested(101)},
    "as deep as requests": {"score": nested(99)},
    "64 bits": {"score": 2**64},
    "large": {"score": 10**400, "scores": [10**400]},
    "negative": {"score": -(2**70)},
    "long": {"score": 10**5000},
    "overflow": {"score": 1.7e308},
    "another overflow": {"score": 1.7e308},
    "surrogate": {"score": "\\\\ud800"},
}


class VerifyRequest(BaseVerifyRequest):
    case: str


class Extreme(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse.grade(body, reward=1.0, **RESULTS.get(body.case, {}))
""".replace("DEEPEST_ROW", str(DEEPEST_ROW))
AGENT = """
extreme_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: extreme}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: rows.jsonl}
"""
BROKEN = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Broken(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0

    def compute_metrics(self, tasks):
        raise ValueError("no metrics today")
"""
CASES = [
    "plain", "at the limit", "just below", "above requests", "as deep as requests", "64 bits", "large", "negative",
    "long", "overflow", "another overflow", "surrogate",
]  # fmt: skip


def nested(depth):
    return "[" * depth + "1" + "]" * depth


@pytest.fixture
def collect(workplace):
    def run(name, source, rows, *words):
        workplace.write("rows.jsonl", "".join(f"{row}\n" for row in rows))
        workplace.environment(name, source)
        workplace.write("agent.yaml", AGENT.replace("extreme", name))
        model = "responses_api_models/sample_model/configs/sample_model.yaml"
        files = f"resources_servers/{name}/configs/{name}.yaml,agent.yaml,{model}"
        return workplace.run(
            "ng_e2e_collect_rollouts", f"+config_paths=[{files}]",
            "+split=example", "+output_jsonl_fpath=x.jsonl", "+max_attempts=1", "+head_server.port=0", *words,
        )  # fmt: skip

    return run


def row(case, **fields):
    return orjson.dumps({"responses_create_params": {"input": "Hi"}, "case": case, **fields}).decode()


def test_extreme_results_keep_the_metrics(collect, workplace):
    rows = [row(case) for case in CASES]
    rows += [row("deep row").replace('"case"', f'"deep": {nested(99)}, "case"')]
    rows += [row("long row").replace('"case"', f'"big": {2**80}, "huge": 1{"0" * 300}, "case"')]
    done = collect("extreme", SERVER, rows)
    assert done.code == 0, done.err
    (metrics,) = orjson.loads((workplace.folder / "x_aggregate_metrics.json").read_bytes())
    scored = {orjson.loads(line)["case"] for line in (workplace.folder / "x.jsonl").read_bytes().splitlines()}
    assert scored == {*CASES, "deep row", "long row"} - {"large", "long"}
    assert metrics["ledger"] == {
        "planned": len(rows), "scored": len(scored), "failed": {"agent_failed": 1, "environment_failed": 1},
        "unresolved": 0,
    }  # fmt: skip
    deep = next(each for each in metrics["group_level_metrics"] if each["sample"]["case"] == "at the limit")
    assert orjson.dumps(deep["sample"]["score"]).decode() == nested(DEEPEST_ROW - 1)


def test_missing_metrics_are_an_error(collect, workplace):
    done = collect("broken", BROKEN, [row("plain")])
    assert done.code == 1
    assert "no metrics today" in done.err
    assert len((workplace.folder / "x.jsonl").read_text().splitlines()) == 1
    record = orjson.loads((workplace.folder / "x_run.json").read_bytes())
    assert record["exit_code"] == 1
    again = collect("broken", BROKEN, [row("plain")], "+disable_aggregation=true", "+overwrite=true")
    assert again.code == 0, again.err
