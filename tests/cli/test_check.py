"""Tests of `ng_check`."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

DATASET = """
config_paths: [{folder}/configs/example_session_state_mgmt.yaml]
sampled_agent:
  _inherit_from: example_session_state_mgmt_simple_agent
  responses_api_agents:
    simple_agent:
      datasets:
        - {{name: example, type: example, jsonl_fpath: {folder}/data/example.jsonl}}
        - {{name: held_out, type: validation, jsonl_fpath: {rows}, license: MIT}}
"""
NG = Path(sysconfig.get_path("scripts")) / "ng"


def check(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NG, "env", "check", *words], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_shipped_environment_keeps_all_promises() -> None:
    done = check("+entrypoint=resources_servers/example_session_state_mgmt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("resources_servers/example_session_state_mgmt: 10 of 10 promises kept\n")
    assert "✓  the oracle earns the full reward" in done.stdout


def test_unpublished_folder_is_checked_with_further_rows(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"responses_create_params": {"input": "x"}, "initial_count": 1}\n')
    done = check(
        "+entrypoint=resources_servers/example_session_state_mgmt", f"+rows_jsonl_fpath={rows}", "--unpublished"
    )
    assert done.returncode == 1
    assert done.stdout.endswith(" of 9 promises kept\n")
    assert "✗  the oracle earns the full reward" in done.stdout
    assert "KeyError: 'expected_count'" in done.stdout


@pytest.mark.slow
def test_other_config_is_checked_with_its_own_rows() -> None:
    folder = "resources_servers/text_to_sql"
    done = check(f"+entrypoint={folder}", f"+config_paths=[{folder}/configs/text_to_sql_multi_step.yaml]")
    assert (done.returncode, done.stderr) == (0, "")
    assert "✓  tools are described and typed           1 tool" in done.stdout


def test_server_setting_can_be_overridden(tmp_path: Path) -> None:
    server = "workplace_assistant.resources_servers.workplace_assistant"
    done = check("+entrypoint=resources_servers/workplace_assistant", f"++{server}.database_dir={tmp_path}")
    assert done.returncode == 1
    assert str(tmp_path) in done.stdout.replace("\n", "").replace(" ", "")


def test_example_rollouts_need_the_unchanged_config() -> None:
    folder = "resources_servers/text_to_sql"
    path = f"+config_paths=[{folder}/configs/text_to_sql_multi_step.yaml]"
    done = check(f"+entrypoint={folder}", path, "+write_examples=true")
    assert done.returncode == 1
    assert "example rollouts are made with the unchanged config of resources_servers/text_to_sql." in done.stderr


def test_unknown_folder_is_reported() -> None:
    done = check("+entrypoint=resources_servers/nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Error: entrypoint=resources_servers/nowhere: no folder with an app.py or a requirements.txt in "
    )


def test_sample_of_a_dataset_is_played(tmp_path: Path) -> None:
    folder = "resources_servers/example_session_state_mgmt"
    rows = tmp_path / "held_out.jsonl"
    good = '{"responses_create_params": {"input": "x"}, "initial_count": 1, "expected_count": 3}\n'
    rows.write_text(good * 40)
    config = tmp_path / "held_out.yaml"
    config.write_text(DATASET.format(folder=folder, rows=rows))
    words = (f"+entrypoint={folder}", f"+config_paths=[{config}]", "--dataset", "validation", "--unpublished")
    done = check(*words, "--sample", "30")
    assert "✓  the oracle earns the full reward        full reward on 35 rows" in done.stdout, done.stdout

    rows.write_text(good * 7 + '{"responses_create_params": {"input": "x"}, "initial_count": 1}\n' + good * 3)
    done = check(*words)
    assert done.returncode == 1
    assert f"{rows}:8" in done.stdout.replace("\n", "").replace(" ", "")


def test_missing_dataset_type_is_reported() -> None:
    done = check("+entrypoint=resources_servers/mcqa", "--dataset", "benchmark")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Error: dataset=benchmark: no agent of this configuration has a dataset of type bench"
    )
