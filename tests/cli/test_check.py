"""Tests of `ng_check`."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S, PROGRESS

pytestmark = pytest.mark.slow

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
CONFIG = """
endless:
  resources_servers:
    endless: {entrypoint: app.py}
endless_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: endless}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: resources_servers/endless/data/example.jsonl}
"""
NG = Path(sysconfig.get_path("scripts")) / "ng"


def check(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [NG, "env", "check", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=folder)


@pytest.mark.slow
def test_shipped_environment_keeps_all_promises() -> None:
    done = check("+entrypoint=resources_servers/example_session_state_mgmt")
    assert (done.returncode, PROGRESS.sub("", done.stderr)) == (0, "")
    assert done.stdout.endswith("resources_servers/example_session_state_mgmt: 11 of 11 promises kept\n")
    assert "✓  the oracle earns the full reward" in done.stdout


def test_unpublished_folder_is_checked_with_further_rows(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"responses_create_params": {"input": "x"}, "initial_count": 1}\n')
    done = check(
        "+entrypoint=resources_servers/example_session_state_mgmt", f"+rows_jsonl_fpath={rows}", "--unpublished"
    )
    assert done.returncode == 1
    assert done.stdout.endswith(" of 10 promises kept\n")
    assert "✗  the oracle earns the full reward" in done.stdout
    assert "KeyError: 'expected_count'" in done.stdout


@pytest.mark.slow
def test_other_config_is_checked_with_its_own_rows() -> None:
    folder = "resources_servers/text_to_sql"
    done = check(f"+entrypoint={folder}", f"+config_paths=[{folder}/configs/text_to_sql_multi_step.yaml]")
    assert (done.returncode, PROGRESS.sub("", done.stderr)) == (0, "")
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
    assert PROGRESS.sub("", done.stderr).startswith(
        "Error: entrypoint=resources_servers/nowhere: no folder with an app.py or a requirements.txt in "
    )


def test_missing_requirement_is_reported_as_by_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "endless"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs/endless.yaml").write_text(CONFIG)
    (folder / "app.py").write_text("import no_such_package\n")
    listed = folder / "requirements.txt"
    listed.write_text("-e nemo-gym @ ../../\nno-such-package>=2\n")
    problem = (
        f"endless: {listed}:2 requires no-such-package>=2, but no-such-package is not installed. To install it here: "
        "pip install 'no-such-package>=2'."
    )
    done = check("endless", folder=tmp_path)
    assert (done.returncode, PROGRESS.sub("", done.stderr)) == (1, f"Error: {problem}\n")
    words = (NG, "env", "start", "--resources-server", "endless", "--model-type", "sample_model", "+dry_run=true")
    started = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=tmp_path)
    assert problem in started.stderr


def test_other_missing_package_is_reported_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "endless"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs/endless.yaml").write_text(CONFIG)
    (folder / "app.py").write_text("\nimport no_such_package\n")
    done = check("endless", folder=tmp_path)
    problem = f"Error: {folder}/app.py:2: No module named 'no_such_package'. "
    assert PROGRESS.sub("", done.stderr).startswith(problem)


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
    assert PROGRESS.sub("", done.stderr).startswith(
        "Error: dataset=benchmark: no agent of this configuration has a dataset of type bench"
    )


@pytest.mark.slow
def test_endless_thread_ends_the_check_and_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "resources_servers" / "endless"
    (folder / "configs").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "app.py").write_text(
        "from nemo_gym import BaseVerifyRequest, SimpleResourcesServer\n\n"
        "class Endless(SimpleResourcesServer):\n"
        "    def verify(self, body: BaseVerifyRequest) -> float:\n"
        "        while True:\n"
        "            pass\n"
    )
    (folder / "oracle.py").write_text("def solve(row):\n    return ['Done.']\n")
    (folder / "data/example.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    (folder / "configs/endless.yaml").write_text(CONFIG)
    promise, line = "the oracle earns the full reward", r"app.py:\d in verify"
    for timeout_s in (6, 24, 96):
        words = ("+entrypoint=resources_servers/endless", "--unpublished", "--timeout", str(timeout_s))
        done = check(*words, folder=tmp_path)
        # On a busy machine, an earlier promise can reach a short limit before the endless one begins.
        if f"✗  {promise}" in done.stdout:
            break
    assert done.returncode == 1
    assert re.search(rf"checking 4 of 10: {promise}, \d+ s; {line} is running", done.stderr)
    shown = " ".join(done.stdout.split())
    assert re.search(rf"✗ {promise} no result after {timeout_s} s, while {line} was running", shown)
    assert shown.endswith(": 3 of 10 promises kept")
