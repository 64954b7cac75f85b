"""`ng deploy render` writes the manifests in `golden/`.

After an intended change, write them again and look at the difference:
`NEMO_GYM_WRITE_GOLDEN=1 .venv/bin/python -m pytest -m "slow or not slow" tests/launcher/kubernetes/test_golden.py`.
"""

from __future__ import annotations

import os

import pytest
import yaml

from tests.launcher.kubernetes.cases import COMPOSE, FOLDER, KUBERAY, KUBERNETES, Case, render, written

CASES = [*KUBERNETES, *KUBERAY, *COMPOSE]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_manifest_is_the_expected_one(case: Case, tmp_path):
    text = written(case, tmp_path)
    if os.environ.get("NEMO_GYM_WRITE_GOLDEN"):
        case.golden.parent.mkdir(exist_ok=True)
        case.golden.write_text(text)
    assert text == case.golden.read_text()


def test_no_golden_file_is_left_over():
    assert {path.stem for path in (FOLDER / "golden").iterdir()} == {case.name for case in CASES}


def test_output_is_the_same_with_local_secrets(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text(
        "config_paths: [resources_servers/mcqa/configs/mcqa.yaml,"
        " responses_api_models/openai_model/configs/openai_model.yaml]\n"
        "policy_model_name: ${oc.env:HOME}\n"
    )
    first = render("--config", "run.yaml", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    env_yaml = "policy_base_url: https://a.example.com/v1\npolicy_api_key: key-of-this-machine\nrun_token: " + "t" * 20
    (tmp_path / "env.yaml").write_text(env_yaml)
    assert render("--config", "run.yaml", cwd=tmp_path).stdout == first.stdout
    assert "example.com" not in first.stdout


def test_compose_gets_its_files_in_a_folder(tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"responses_create_params": {"input": "$HOME"}}\n')
    words = ("--resources-server", "mcqa", "--model-type", "sample_model", "--input", "tasks.jsonl")
    done = render(*words, "--target", "compose", "--output", "made/here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "made" / "here"
    assert {path.name for path in folder.iterdir()} == {"compose.yaml", "config.yaml", "rows.jsonl"}
    collector = yaml.safe_load((folder / "compose.yaml").read_text())["services"]["collect"]
    mounted = [volume.split(":")[0] for volume in collector["volumes"]]
    assert mounted == ["./config.yaml", "results", "./rows.jsonl"]
    assert (folder / "rows.jsonl").read_bytes() == (tmp_path / "tasks.jsonl").read_bytes()
