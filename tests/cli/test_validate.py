"""Tests of `ng_validate` and `ng_dump_config`: configs without a model, and servers that never get ready."""

from __future__ import annotations

import pytest
import yaml

pytestmark = pytest.mark.slow

DATASETS = """\
mcqa:
  resources_servers:
    mcqa: {entrypoint: app.py, domain: knowledge}
mcqa_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: mcqa}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: there, type: example, jsonl_fpath: resources_servers/mcqa/data/example.jsonl}
        - {name: typo, type: example, jsonl_fpath: resources_servers/mcqa/data/exmaple.jsonl}
        - {name: made, type: example, jsonl_fpath: made.jsonl, prepare_script: prepare.py}
        - {name: hub, type: example, jsonl_fpath: hub.jsonl, source: {type: huggingface, repo_id: a/b}}
"""
STAND_IN_NOTE = " (without policy_model, which no file defines; --model-type adds it)"


@pytest.mark.parametrize(
    "words",
    [
        ("--resources-server", "mcqa"),
        ("--config", "resources_servers/mcqa/configs/mcqa.yaml"),
        ("--environment", "garden"),
        ("--benchmark", "plants"),
    ],
)
def test_config_without_model_is_validated(shared_workplace, words):
    included = "config_paths: [resources_servers/mcqa/configs/mcqa.yaml]\n"
    shared_workplace.write("environments/garden/config.yaml", included)
    shared_workplace.write("benchmarks/plants/config.yaml", included)
    finished = shared_workplace.run("ng", "env", "validate", *words)
    assert finished == (0, f"✓ 2 servers: mcqa, mcqa_simple_agent{STAND_IN_NOTE}\n", "")


def test_absent_dataset_is_noted(shared_workplace):
    shared_workplace.write("datasets.yaml", DATASETS)
    finished = shared_workplace.run("ng_validate", "+config_paths=[datasets.yaml]")
    assert finished.code == 0
    (note,) = finished.err.splitlines()
    assert note.startswith(
        "note: datasets.yaml:12: mcqa_agent.datasets: dataset 'typo': file "
        "'resources_servers/mcqa/data/exmaple.jsonl' not found in "
    )
    assert note.endswith("Copy it there, or add a source.")


def test_misspelt_field_of_a_prompt_is_found(shared_workplace):
    shared_workplace.write("judge.md", "{question} {expected_answer} {generated_anwser}")
    setting = "text_to_sql.resources_servers.text_to_sql.judge_prompt_template_fpath"
    finished = shared_workplace.run("ng_validate", "--resources-server", "text_to_sql", f"++{setting}=judge.md")
    problem = "the prompt uses the unknown field 'generated_anwser'. Did you mean 'generated_answer'?"
    assert (finished.code, f"{setting}: judge.md: {problem}" in finished.err) == (1, True), finished.err


def test_configured_model_is_still_validated(shared_workplace):
    words = ("--resources-server", "mcqa", "--model-type")
    finished = shared_workplace.run("ng_validate", *words, "openai_model")
    assert finished.code == 1
    assert "refers to ${policy_base_url}, which is not defined." in finished.err
    assert shared_workplace.run("ng_validate", *words, "sample_model") == (
        0, "✓ 3 servers: mcqa, mcqa_simple_agent, policy_model\n", "",
    )  # fmt: skip


def test_dump_of_config_without_model_adds_none(shared_workplace):
    finished = shared_workplace.run("ng_dump_config", "--resources-server", "mcqa")
    assert (finished.code, finished.err) == (0, "")
    assert sorted(yaml.safe_load(finished.out)) == ["config_paths", "mcqa", "mcqa_simple_agent"]


WAITING = """
import time

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Waiting(SimpleResourcesServer):
    def setup_webserver(self):
        while self.server_client.poll_for_status("plain") != "success": time.sleep(0.01)
        return super().setup_webserver()

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def test_server_that_waits_for_another_is_reported(workplace):
    configs = (workplace.environment("waiting", WAITING), workplace.environment())
    finished = workplace.run("ng_validate", *configs, "+ready_timeout_s=3")
    app = workplace.folder / "resources_servers/waiting/app.py"
    assert (finished.code, finished.out) == (1, "")
    where = f"{app}:9 in setup_webserver: while self."
    assert finished.err.startswith(f"Error: waiting has not started after 3 s: {where}")
    assert "In a dry run no other server answers, so do not wait for one before the first request." in finished.err
    assert workplace.left_over() == []


LACKING = """\
plain_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: plain}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""
ROWS = '{"responses_create_params": {"input": "Hello"}}\n' * 5


def test_only_a_start_needs_the_servers_variables(workplace):
    config = workplace.environment("plain", settings="key: ${oc.env:NO_SUCH_VARIABLE}")
    workplace.write("agent.yaml", f"config_paths: {config.partition('=')[2]}\n{LACKING}")
    workplace.write("rows.jsonl", ROWS)
    words = "+config_paths=[agent.yaml]", "--model-type", "sample_model"
    problem = "plain.key reads the environment variable NO_SUCH_VARIABLE, which is not set. Set it (export NO_SUCH"

    resolved = workplace.run("ng_dump_config", *words)
    assert yaml.safe_load(resolved.out)["plain"]["resources_servers"]["plain"]["key"] == "${oc.env:NO_SUCH_VARIABLE}"
    validated = workplace.run("ng_validate", *words)
    assert (validated.code, validated.out) == (0, "✓ 2 servers: policy_model, plain_agent\n")
    assert validated.err.startswith("note: plain was not checked: resources_servers/plain/configs/plain.yaml:5: ")
    assert problem in validated.err
    mode = "+mode=example_validation", "+output_dirpath=prepared"
    prepared = workplace.run("ng_prepare_data", words[0], *mode)
    assert (prepared.code, prepared.err) == (0, "")

    started = workplace.run("ng_run", *words)
    assert (started.code, started.out) == (1, "")
    assert problem in started.err
    up = workplace.start_servers(*words, NO_SUCH_VARIABLE="k")
    assert up.end().code == 0


def test_manifest_is_validated_and_published(workplace):
    workplace.environment("described")
    path = "resources_servers/described/manifest.yaml"
    missing = workplace.run("ng", "env", "publish", "described")
    assert (missing.code, missing.out) == (1, "")
    assert f"{path}: there is no manifest." in missing.err
    workplace.write(path, "name: described\nlifecycle: active\nreward: {range: [0, 1]}\n")
    validated = workplace.run("ng", "env", "validate", "--manifest", path)
    assert (validated.code, validated.out) == (0, f"✓ {path}: described\n")
    published = workplace.run("ng", "env", "publish", "described", "--json")
    expected = {"name": "described", "lifecycle": "active", "reward": {"range": [0.0, 1.0]}}
    assert (published.code, yaml.safe_load(published.out)) == (0, expected)
    named = workplace.run("ng", "env", "validate", "described", "--json")
    assert (named.code, yaml.safe_load(named.out)) == (0, {"servers": ["described"], "without": []})
    workplace.write("benchmarks/described/manifest.yaml", "name: other\n")
    workplace.write("benchmarks/described/config.yaml", "config_paths: [resources_servers/mcqa/configs/mcqa.yaml]\n")
    other = workplace.run("ng", "env", "publish", "described", "--kind", "benchmark")
    assert (other.code, yaml.safe_load(other.out)) == (0, {"name": "other"})
    chosen = workplace.run("ng", "env", "validate", "described", "--kind", "benchmark")
    assert chosen == (0, f"✓ 2 servers: mcqa, mcqa_simple_agent{STAND_IN_NOTE}\n", "")
    workplace.write(path, "name: described\nlifecyle: active\n")
    invalid = workplace.run("ng", "env", "validate", "described", "--kind", "environment")
    assert (invalid.code, "'lifecyle' is not a key of a manifest." in invalid.err) == (1, True)
    by_path = workplace.run("ng", "env", "validate", "benchmarks/described/config.yaml")
    assert by_path == chosen
    unknown = workplace.run("ng", "env", "validate", "descrbed")
    assert (unknown.code, "Did you mean 'described'?" in unknown.err) == (1, True)
    synced = workplace.run("ng", "env", "validate", "--sync")
    assert synced.code == 2
    assert "--sync is not available" in synced.err
