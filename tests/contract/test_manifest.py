"""The reward that a manifest declares, and the checks that compare it with the rewards."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.contract.checks import check_environment
from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.manifest import declared_reward, read_manifest
from nemo_gym.errors import DataError

CONFIG = """
errors:
  resources_servers:
    answer_match: {entrypoint: app.py, grader: exact}
errors_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: errors}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: environments/errors/rows.jsonl}]
"""
ROW = '{"responses_create_params": {"input": "?"}, "expected_answer": "yes"}\n'


async def broken(folder: Path, monkeypatch: pytest.MonkeyPatch, reward: str) -> dict[str, str]:
    """Return the broken promises of an environment whose manifest declares this reward."""
    environment = folder / "environments" / "errors"
    environment.mkdir(parents=True)
    (environment / "config.yaml").write_text(CONFIG)
    (environment / "rows.jsonl").write_text(ROW)
    (environment / "manifest.yaml").write_text(f"name: errors\nreward: {reward}\n")
    monkeypatch.chdir(folder)
    with open_environment(environment) as opened:
        findings = await check_environment(opened, for_publishing=False)
    return {finding.promise: finding.detail for finding in findings if not finding.is_kept}


async def test_fitting_manifest_breaks_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await broken(tmp_path, monkeypatch, "{range: [0, 1], higher_is_better: true}") == {}


async def test_reward_outside_of_the_range_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await broken(tmp_path, monkeypatch, "{range: [-1, 0.5]}")
    expected = "row 1: the reward 1 is not between -1 and 0.5, the range that manifest.yaml declares"
    assert found["the oracle earns the full reward"] == expected


async def test_no_op_must_earn_more_than_oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await broken(tmp_path, monkeypatch, "{higher_is_better: false}")
    assert found == {"doing nothing earns less": "row 1 earned 0 for doing nothing"}


@pytest.mark.parametrize(
    ("reward", "problem"),
    [
        ("{range: [1, 0]}", "reward.range: the first number must be less than the second"),
        ("{range: [1]}", "reward.range.1: Field required"),
        ("[0, 1]", "reward: Input should be"),
        ("{higher_is_better: perhaps}", "reward.higher_is_better: Input should be a valid boolean"),
    ],
)
def test_invalid_manifest_is_reported_with_its_key(tmp_path: Path, reward: str, problem: str) -> None:
    (tmp_path / "manifest.yaml").write_text(f"reward: {reward}\n")
    with pytest.raises(DataError) as caught:
        declared_reward(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'manifest.yaml'}: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("reward: {rnge: [0, 1]}", "'reward.rnge' is not a key of a manifest. Did you mean 'reward.range'?"),
        ("lifecyle: active", "'lifecyle' is not a key of a manifest. Did you mean 'lifecycle'?"),
        ("colour: red", "'colour' is not a key of a manifest. The keys are: reward, name, version"),
        ("lifecycle: dead", "lifecycle: Input should be 'active' or 'deprecated'."),
        ("kind: game", "kind: Input should be 'environment' or 'benchmark'."),
    ],
)
def test_unknown_keys_and_values_are_rejected(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(f"{text}\n")
    with pytest.raises(DataError) as caught:
        read_manifest(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
