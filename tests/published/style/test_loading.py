"""Load the configs of folders in the style of the published package, and collect rollouts with their servers.

| folder                 | idioms |
|------------------------|--------|
| `coin_row`             | `workers` and `isolated` as its own settings; overlays for absent servers |
| `streak_agent`         | `compute_metrics` and `get_key_metrics` of an agent |
| `table_talk/rehearsal` | a nested implementation, modules of its parent, `_delete_key`, a list of absent servers |
"""

from __future__ import annotations

import shutil

import orjson
import pytest

from tests.published.style.folders import HERE
from tests.published.style.scripted_environments import SCRIPTED_MODEL

pytestmark = pytest.mark.slow

CONFIG = "resources_servers/coin_row/configs/coin_row.yaml"
OVERLAYS = "resources_servers/coin_row/configs/coin_row_judged.yaml"
NESTED = "responses_api_agents/table_talk/rehearsal/configs/rehearsal.yaml"
MODEL = "policy_model: {responses_api_models: {scripted_model: {entrypoint: app.py, answer: heads}}}\n"
JUDGE = MODEL + MODEL.replace("policy_model", "judge_model")
REPEATS = 2


@pytest.fixture(scope="module")
def loaded(shared_workplace):
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    shutil.copytree(HERE / "loaded", shared_workplace.folder, dirs_exist_ok=True, ignore=ignored)
    shared_workplace.write("responses_api_models/scripted_model/app.py", SCRIPTED_MODEL)
    shared_workplace.write("model.yaml", MODEL)
    shared_workplace.write("judge.yaml", JUDGE)
    return shared_workplace


def collected(loaded, name, *configs):
    """Collect with a command that starts servers; return its output, the rollouts and the agent's metrics."""
    output = f"results/{name}.jsonl"
    finished = loaded.run(
        "ng_e2e_collect_rollouts",
        f"+config_paths=[{','.join(configs)}]",
        "+split=example",
        f"+output_jsonl_fpath={output}",
        f"+num_repeats={REPEATS}",
        "+head_server.port=0",
    )
    assert finished.code == 0, finished.out + finished.err
    rows = [orjson.loads(line) for line in (loaded.folder / output).read_bytes().splitlines()]
    (metrics,) = orjson.loads((loaded.folder / f"results/{name}_aggregate_metrics.json").read_bytes())
    return finished, rows, metrics


@pytest.mark.parametrize(
    "folder",
    ["resources_servers/coin_row", "responses_api_agents/streak_agent", "responses_api_agents/table_talk/rehearsal"],
)
def test_own_tests_pass(loaded, folder):
    finished = loaded.run("ng_test", f"+entrypoint={folder}")
    assert finished.code == 0, finished.out + finished.err


def test_nested_folders_are_listed_and_tested(loaded):
    assert "table_talk/rehearsal" in loaded.run("ng", "list", "agents").out
    assert "responses_api_agents/table_talk/rehearsal" in loaded.run("ng_test_all").out


def test_metrics_of_an_agent_are_written_and_shown(loaded):
    finished, rows, metrics = collected(loaded, "plain", CONFIG, "model.yaml")
    assert [row["workers"] for row in rows] == [["ann", "bob"]] * 2 * REPEATS
    assert metrics["agent_metrics"]["tasks_won"] == 1
    assert metrics["key_metrics"].items() >= {"mean/reward": 0.5, "tasks_won": 1}.items()
    assert "tasks_won" in finished.out
    merged = loaded.run(
        "ng_aggregate_rollouts",
        f"+config_paths=[{CONFIG}]",
        "+input_glob=results/plain.jsonl",
        "+output_jsonl_fpath=results/merged.jsonl",
    )
    assert merged.code == 0, merged.out + merged.err
    (again,) = orjson.loads((loaded.folder / "results/merged_aggregate_metrics.json").read_bytes())
    assert again["agent_metrics"]["tasks_won"] == 1
    assert "tasks_won" in merged.out


def test_overlays_change_only_included_servers(loaded):
    finished, rows, _ = collected(loaded, "judged", CONFIG, OVERLAYS, "judge.yaml")
    assert rows[0]["judge"] == {"type": "responses_api_models", "name": "judge_model"}
    assert "other_coin_row" not in finished.out + finished.err


def test_nested_implementation_replaces_the_included_one(loaded):
    _, rows, metrics = collected(loaded, "nested", NESTED, "model.yaml")
    assert {row["responses_create_params"]["input"] for row in rows} == {"Heads or tails? Think aloud first."}
    assert metrics["agent_metrics"]["tasks_won"] == 1
    validated = loaded.run("ng_validate", f"+config_paths=[{NESTED},model.yaml]")
    assert (validated.code, validated.err) == (0, "")
