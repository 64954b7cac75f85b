"""Prompts of a million tokens through collector, agent, model and grading."""

import orjson
import pytest

from resources_servers.long_context.prepare import prepare
from tests.rows import rows_of

pytestmark = pytest.mark.slow

KINDS = ("one_needle", "nth_answer", "many_needles", "citations")
CONFIG = """
policy_model:
  responses_api_models:
    sample_model:
      entrypoint: app.py
      answers: ["Answer: {answer}"]
long_context_simple_agent:
  responses_api_agents:
    simple_agent:
      datasets: [{{name: long, type: example, jsonl_fpath: rows.jsonl}}]
"""
REPEATS = 2


def prompt_of(row):
    (message,) = row["responses_create_params"]["input"]
    return message["content"]


@pytest.fixture(scope="module")
def collected(shared_workplace):
    """The rows, of which the last one has twice the length, and the rollouts by row. The model answers the first."""
    path = prepare(shared_workplace.folder / "rows.jsonl", len(KINDS), lengths=["1m"], subset=KINDS)
    rows = rows_of(path)
    message = rows[-1]["responses_create_params"]["input"][0]
    message["content"] += message["content"]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    shared_workplace.write("long.yaml", CONFIG.format(answer=rows[0]["expected_answer"]))
    finished = shared_workplace.run(
        "ng_e2e_collect_rollouts",
        "+config_paths=[resources_servers/long_context/configs/long_context.yaml,long.yaml]",
        "+split=example",
        f"+num_repeats={REPEATS}",
        "+output_jsonl_fpath=long_results.jsonl",
        "+head_server.port=0",
    )
    assert finished.code == 0, finished.err
    rollouts = {}
    for row in rows_of(shared_workplace.folder / "long_results.jsonl"):
        rollouts.setdefault(row["_ng_task_index"], []).append(row)
    return rows, rollouts


def test_million_token_rows_are_graded(collected):
    rows, rollouts = collected
    assert {task: [row["reward"] for row in each] for task, each in rollouts.items()} == {
        task: [float(task == 0)] * REPEATS for task in range(len(rows))
    }


def test_results_keep_the_whole_prompt(collected):
    rows, rollouts = collected
    assert len(prompt_of(rows[0])) > 3_000_000
    assert len(prompt_of(rows[-1])) > 6_000_000
    for task, row in enumerate(rows):
        # A plain comparison of such texts would print both of them.
        assert all(prompt_of(each) == prompt_of(row) for each in rollouts[task]), task


def test_metrics_have_the_length_and_every_kind(collected, shared_workplace):
    (metrics,) = orjson.loads((shared_workplace.folder / "long_results_aggregate_metrics.json").read_bytes())
    accuracy = {name: metrics["key_metrics"][f"{name}/pass@1[avg-of-2]/accuracy"] for name in (*KINDS, "length/1m")}
    assert accuracy == {
        "one_needle": 100.0,
        "nth_answer": 0.0,
        "many_needles": 0.0,
        "citations": 0.0,
        "length/1m": 25.0,
    }
