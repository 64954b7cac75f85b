"""Tests of `ng_aggregate_rollouts` and `ng_reward_profile`."""

from __future__ import annotations

import orjson
import pytest

from tests.rows import rows_of

pytestmark = pytest.mark.slow

AGENT = {"type": "responses_api_agents", "name": "example_multi_step_simple_agent"}
ENVIRONMENT = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
CONFIG = f"+config_paths=[{ENVIRONMENT},responses_api_models/sample_model/configs/sample_model.yaml]"
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def asked(task, repeat):
    return {
        "responses_create_params": {"input": f"question {task}"},
        "agent_ref": AGENT,
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def done(task, repeat, reward):
    return {**asked(task, repeat), "response": {"output": [], "usage": USAGE}, "reward": reward}


def write(workplace, path, *rows):
    workplace.write(path, "".join(orjson.dumps(row).decode() + "\n" for row in rows))


def read(workplace, path):
    return rows_of(workplace.folder / path)


@pytest.fixture(scope="module")
def serving(shared_workplace):
    command = shared_workplace.start_servers(CONFIG)
    yield shared_workplace
    command.end()


@pytest.fixture(scope="module")
def shards(serving):
    """Two shards of one run, with the other files that a collection writes."""
    rows = {"a": [done(0, 0, 1.0), done(0, 1, 0.0)], "b": [done(1, 1, 0.5), done(1, 0, 0.5)]}
    for name, rollouts in rows.items():
        write(serving, f"shards/{name}.jsonl", *rollouts)
        write(serving, f"shards/{name}_materialized_inputs.jsonl", asked(7, 7))
        write(serving, f"shards/{name}_failures.jsonl", {**asked(8, 8), "_ng_failure_class": "timeout"})
    return rows


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("ng_aggregate_rollouts", ("+input_glob=shards/*.jsonl", "+output_jsonl_fpath=OUT")),
        ("nemo_gym_aggregate_rollouts", ("++input_glob=shards/a*.jsonl,shards/b.jsonl", "+output_jsonl_fpath=OUT")),
        ("ng", ("eval", "aggregate", "-i", "shards/a.jsonl, shards/[b].jsonl,shards/*.jsonl", "-o", "OUT")),
    ],
)
def test_shards_are_merged_and_measured(serving, shards, program, words):
    out = f"merged/{program}.jsonl"
    finished = serving.run(program, *(word.replace("OUT", out) for word in words))
    assert (finished.code, finished.err) == (0, "")
    assert "4 rollouts in 2 files: shards/a.jsonl, shards/b.jsonl" in finished.out
    assert read(serving, out) == shards["a"] + shards["b"]
    (metrics,) = orjson.loads((serving.folder / f"merged/{program}_aggregate_metrics.json").read_bytes())
    assert metrics["agent_ref"] == {"name": AGENT["name"]}
    assert metrics["agent_metrics"]["mean/reward"] == 0.5
    assert [group["num_rollouts"] for group in metrics["group_level_metrics"]] == [2, 2]
    assert metrics["agent_metrics"]["mean/total_tokens"] == 7.0


def test_parts_of_a_run_are_merged(serving):
    rows = "resources_servers/example_multi_step/data/example.jsonl"
    words = ("--agent", AGENT["name"], "--input", rows, "--num-repeats", "2")
    for number, setting in ((1, "--shard=1/2"), (2, "+shard=2/2")):
        output = f"parts/part{number}.jsonl"
        assert serving.run("ng", "eval", "run", "--no-serve", *words, setting, "--output", output).code == 0
    merging = ("ng", "eval", "aggregate", "-i", "parts/part*.jsonl", "-o", "parts/all.jsonl")
    assert serving.run(*merging).code == 0
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in read(serving, "parts/all.jsonl")]
    assert sorted(keys) == [(task, repeat) for task in range(5) for repeat in range(2)]


def test_metrics_can_be_computed_without_merging(serving, shards):
    words = ("+input_glob=shards/*.jsonl", "+output_jsonl_fpath=unmerged/all.jsonl", "+merge_shards=false")
    assert serving.run("ng_aggregate_rollouts", *words).code == 0
    assert [path.name for path in (serving.folder / "unmerged").iterdir()] == ["all_aggregate_metrics.json"]


def test_output_is_replaced_only_if_asked(serving, shards):
    write(serving, "there.jsonl", done(5, 0, 1.0))
    ledger = serving.write("there_run/ledger.jsonl", '{"event":"session"}\n')
    words = ("+input_glob=shards/*.jsonl", "+output_jsonl_fpath=there.jsonl")
    refused = serving.run("ng_aggregate_rollouts", *words)
    assert (refused.code, read(serving, "there.jsonl")) == (1, [done(5, 0, 1.0)])
    assert refused.err == (
        "Error: there.jsonl already contains rollouts. Add --overwrite to replace it, or choose another file.\n"
    )
    assert ledger.exists()
    assert serving.run("ng_aggregate_rollouts", *words, "+overwrite=true").code == 0
    # It describes the lines that have been replaced, so a resumed run would reject the new ones.
    assert not ledger.exists()
    assert len(read(serving, "there.jsonl")) == 4


def test_agent_that_is_not_running_is_reported(serving):
    row = done(0, 0, 1.0)
    write(serving, "foreign.jsonl", {**row, "agent_ref": {"name": "another"}})
    words = ("+input_glob=foreign.jsonl", "+output_jsonl_fpath=foreign_merged.jsonl")
    finished = serving.run("ng_aggregate_rollouts", *words)
    assert finished.code == 1
    assert finished.err.startswith("Error: ")
    assert "another" in finished.err
    assert finished.err.count("\n") == 1


SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Counted(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0

    def compute_metrics(self, tasks):
        return {"tasks_seen": len(tasks)}
"""
AGENT_BLOCK = """
counted_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: counted}
      model_server: {type: responses_api_models, name: policy_model}
"""


def test_config_starts_servers_that_compute_metrics(workplace):
    config = workplace.environment("counted", SERVER)
    workplace.write("agent.yaml", AGENT_BLOCK)
    write(workplace, "run.jsonl", {**done(0, 0, 1.0), "agent_ref": {"name": "counted_agent"}})
    words = ("+input_glob=run.jsonl", "+overwrite=true")
    finished = aggregated(workplace, *words, config, "+config_paths=[agent.yaml]")
    assert (finished.code, finished.err) == (0, "")
    (metrics,) = orjson.loads((workplace.folder / "out_aggregate_metrics.json").read_bytes())
    assert metrics["agent_metrics"]["tasks_seen"] == 1
    without = aggregated(workplace, *words)
    assert (without.code, without.err[:32]) == (0, "note: no servers are running, so")
    (metrics,) = orjson.loads((workplace.folder / "out_aggregate_metrics.json").read_bytes())
    assert metrics["agent_metrics"]["mean/reward"] == 1.0
    assert "tasks_seen" not in metrics["agent_metrics"]


def test_agent_missing_from_config_is_reported(workplace):
    config = workplace.environment("counted", SERVER)
    workplace.write("agent.yaml", AGENT_BLOCK)
    write(workplace, "run.jsonl", done(0, 0, 1.0))
    assert aggregated(workplace, "+input_glob=run.jsonl", config, "+config_paths=[agent.yaml]") == (
        1,
        "",
        f"Error: no file of this config defines the rollouts' agents ({AGENT['name']}). Agents of the config: "
        "counted_agent. Pass the config of the original collection.\n",
    )


def aggregated(workplace, *words):
    return workplace.run("ng_aggregate_rollouts", "+output_jsonl_fpath=out.jsonl", *words)


def test_duplicate_rollouts_are_reported_with_their_locations(workplace):
    write(workplace, "a.jsonl", done(0, 0, 1.0), done(0, 1, 1.0))
    write(workplace, "b.jsonl", done(0, 1, 0.0))
    finished = aggregated(workplace, "+input_glob='[ab].jsonl'")
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: 1 rollout found twice for the same agent (task:rollout): 0:1 (a.jsonl:2 and b.jsonl:1). "
    )
    assert not (workplace.folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("glob", "message"),
    [
        ("none_*.jsonl", "Error: input_glob: 'none_*.jsonl' does not match any rollout file (looked in "),
        ("a.jsonl,b.jsonl", "Error: input_glob: 'b.jsonl' does not match any rollout file "),
        ("torn.jsonl", "Error: torn.jsonl:1:2: not valid JSON "),
        ("a*_failures.jsonl", "Error: input_glob: 'a*_failures.jsonl' does not match any rollout file "),
        ("empty.jsonl", "Error: empty.jsonl: no rollouts found. Pass the output of a collection."),
        ("out.jsonl", "Error: out.jsonl is both the output and one of the files to merge."),
    ],
)
def test_invalid_input_files_are_reported(workplace, glob, message):
    write(workplace, "a.jsonl", done(0, 0, 1.0))
    write(workplace, "a_failures.jsonl", done(0, 0, 1.0))
    if glob == "out.jsonl":
        write(workplace, "out.jsonl", done(0, 0, 1.0))
    workplace.write("torn.jsonl", "{\n")
    workplace.write("empty.jsonl", "\n")
    finished = aggregated(workplace, f"+input_glob='{glob}'")
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(message)


@pytest.fixture
def run_files(workplace):
    """Files of two tasks, each run twice, with one rollout missing."""
    write(workplace, "x_materialized_inputs.jsonl", *(asked(task, repeat) for task in (0, 1) for repeat in (0, 1)))
    write(workplace, "x.jsonl", done(0, 0, 1.0), done(1, 0, 0.25), done(0, 1, 0.0))
    return ("+materialized_inputs_jsonl_fpath=x_materialized_inputs.jsonl", "+rollouts_jsonl_fpath=x.jsonl")


def test_profile_reports_tasks_and_completion(workplace, run_files):
    finished = workplace.run("ng_reward_profile", *run_files, "+allow_partial_rollouts=true")
    assert (finished.code, finished.err) == (0, "")
    shown, _, completion = finished.out.partition("\n\n")
    assert [line.split() for line in shown.splitlines()] == [
        ["Rewards", "of", "example_multi_step_simple_agent"],
        ["reward", "rollouts"],
        *([reward, "1", "█" * 40] for reward in ("0", "0.25", "1")),
    ]
    assert completion == (
        "3 of 4 rollouts done; 2 inputs = 1 complete + 1 partial + 0 missing\n"
        "tasks:  x_reward_profiling.jsonl\n"
        "agents: x_agent_metrics.json\n"
    )
    first, second = read(workplace, "x_reward_profiling.jsonl")
    assert (first["mean/reward"], second["mean/reward"]) == (0.5, 0.25)
    assert (first["missing_num_rollouts"], second["missing_num_rollouts"]) == (0, 1)
    (agent,) = orjson.loads((workplace.folder / "x_agent_metrics.json").read_bytes())
    assert (agent["agent_ref"], agent["max/reward"]) == ({"name": AGENT["name"]}, 1.0)


def test_missing_rollouts_are_reported_by_key(workplace, run_files):
    finished = workplace.run("ng", "eval", "profile", *run_files)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err == (
        "Error: x.jsonl: rollouts (task:rollout) do not match the inputs; 1 missing: 1:1. Resume the collection, or "
        "add --allow-partial-rollouts.\n"
    )


def test_rollouts_of_another_run_are_reported_by_key(workplace, run_files):
    write(workplace, "x.jsonl", done(4, 2, 1.0), done(0, 0, 1.0))
    finished = workplace.run("nemo_gym_reward_profile", *run_files, "+allow_partial_rollouts=true")
    assert finished.code == 1
    assert "1 without an input row: 4:2." in finished.err


def test_older_setting_names_are_accepted(workplace, run_files):
    finished = workplace.run(
        "ng_reward_profile",
        "+input_jsonl_fpath=x_materialized_inputs.jsonl",
        "+rollouts_jsonl_fpath=x.jsonl",
        "+output_jsonl_fpath=made/tasks.jsonl",
        "+pass_threshold=0.5",
        "+allow_partial_rollouts=true",
    )
    assert (finished.code, finished.err) == (0, "")
    assert [group["pass_rate"] for group in read(workplace, "made/tasks.jsonl")] == [0.5, 0.0]


def test_missing_setting_is_reported_by_name(workplace):
    finished = workplace.run("ng", "eval", "profile", "--rollouts", "x.jsonl")
    assert finished == (
        2,
        "",
        "Error: materialized_inputs_jsonl_fpath is missing: add --inputs …. --help lists all settings.\n",
    )
