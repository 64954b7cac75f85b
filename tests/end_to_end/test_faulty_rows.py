"""A collection over faulty rows: what its terminal and its failures file say about each of them."""

from __future__ import annotations

import orjson
import pytest

from tests.rows import rows_of

pytestmark = pytest.mark.slow

APP = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer, tool


class VerifyRequest(BaseVerifyRequest):
    label: str
    words: int = 1


class SentimentServer(SimpleResourcesServer):
    @tool
    async def look_up(self, word: str) -> str:
        \"\"\"Look up a word.\"\"\"
        return f"{word} is a word"

    async def verify(self, body: VerifyRequest) -> float:
        return body.words / (body.words - 3)
"""
AGENT = """
sentiment_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: sentiment}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: rows, type: example, jsonl_fpath: in/rows.jsonl}]
"""
ROWS = [
    {"label": "good", "level": 7},
    {"lable": "good"},
    {"question": 2},
    {"question": 3},
    {"label": 4},
    {"label": "bad", "words": 3},
]


@pytest.fixture(scope="module")
def collected(shared_workplace):
    """The finished command, its failures by task, and the workplace's folder."""
    shared_workplace.environment("sentiment", APP)
    shared_workplace.write("agent.yaml", AGENT)
    rows = [{"responses_create_params": {"input": f"{number}"}, **row} for number, row in enumerate(ROWS)]
    shared_workplace.write("in/rows.jsonl", b"\n".join(map(orjson.dumps, rows)).decode())
    configs = ",".join([
        "resources_servers/sentiment/configs/sentiment.yaml", "agent.yaml",
        "responses_api_models/sample_model/configs/sample_model.yaml",
    ])  # fmt: skip
    finished = shared_workplace.run(
        "ng_e2e_collect_rollouts",
        f"+config_paths=[{configs}]",
        "+split=example",
        "+output_jsonl_fpath=results/faulty.jsonl",
        "+head_server.port=0",
        "+num_samples_in_parallel=1",
    )
    assert finished.code == 0, finished.err
    failures = rows_of(shared_workplace.folder / "results/faulty_failures.jsonl")
    return finished, {row["_ng_task_index"]: row for row in failures}, shared_workplace.folder


def test_missing_field_is_reported_once_with_its_line(collected):
    finished, _, folder = collected
    place = f"{folder}/in/rows.jsonl"
    needed = "which verify of sentiment needs"
    lines = [line for line in finished.err.splitlines() if line.startswith("invalid_task")]
    assert [line.partition(place)[2] for line in sorted(lines)] == [
        f":2: the row lacks 'label', {needed}; is 'lable' a typo?",
        f":3: the row lacks 'label', {needed}",
        ":5: the row's 'label' is invalid for verify of sentiment: it must be a valid string, but is 4; put it in "
        "quotes",
    ]
    assert f"  2 invalid_task, the first: {place}:3: the row lacks 'label', {needed}" in finished.out.splitlines()


def test_bug_is_recorded_with_line_log_and_conversation(collected):
    finished, failures, folder = collected
    failure = failures[5]
    assert failure["_ng_failure_message"] == (
        "sentiment: /verify raised app.py:17: ZeroDivisionError: division by zero; its log has the traceback"
    )
    assert failure["_ng_failure_log"] == "results/faulty_run/logs/sentiment.log"
    assert "ZeroDivisionError" in (folder / failure["_ng_failure_log"]).read_text()
    assert f"{failure['_ng_failure_message']} (log: {failure['_ng_failure_log']})" in finished.err
    items = failure["_ng_failure_conversation"]["items"]
    assert failure["_ng_failure_conversation"]["omitted"] == 0
    assert items
    assert "response" not in failure


def test_numbers_of_rows_are_not_in_the_table(collected):
    finished, _, folder = collected
    (metrics,) = orjson.loads((folder / "results/faulty_aggregate_metrics.json").read_bytes())
    assert (metrics["agent_metrics"]["mean/level"], metrics["row_fields"]) == (7.0, ["level"])
    assert "mean/reward" in finished.out
    assert "level" not in finished.out


def test_sound_row_is_still_scored(collected):
    _, failures, folder = collected
    (scored,) = rows_of(folder / "results/faulty.jsonl")
    assert (scored["label"], scored["reward"]) == ("good", -0.5)
    assert "_ng_failure_conversation" not in scored
    assert failures.keys() == {1, 2, 3, 4, 5}
