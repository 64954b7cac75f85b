"""`nemo_gym.benchmarks`: finding a benchmark by name and preparing its data with its own script."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.benchmarks import BenchmarkConfig, find_benchmarks
from nemo_gym.errors import DataError

CONFIG = """
sums:
  resources_servers:
    mcqa:
      entrypoint: app.py
sums_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: sums}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: shown, type: example, jsonl_fpath: benchmarks/sums/data/example.jsonl}
        - name: sums
          type: benchmark
          jsonl_fpath: benchmarks/sums/data/sums.jsonl
          prepare_script: benchmarks/sums/prepare.py
          prompt_config: benchmarks/sums/prompts/default.yaml
          license: anything goes
          num_repeats: 4
"""
PREPARE = """
from pathlib import Path


def prepare(count: int = 2) -> Path:
    path = Path(__file__).parent / "data" / "sums.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"question": "1 + 1?"}\\n' * count)
    return path
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "benchmarks" / "sums"
    (folder / "prompts").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "hard.yaml").write_text(CONFIG.replace("num_repeats: 4", "num_repeats: 1"))
    (folder / "prompts" / "default.yaml").write_text("user: '{question}'\n")
    (folder / "prepare.py").write_text(PREPARE)
    return folder


def test_benchmark_matches_its_configuration(folder):
    benchmark = BenchmarkConfig.from_config_path("benchmarks/sums/config.yaml")
    assert (benchmark.name, benchmark.agent_name, benchmark.num_repeats) == ("sums", "sums_agent", 4)
    assert benchmark.path == folder / "config.yaml"
    assert benchmark.dataset.prompt_config == "benchmarks/sums/prompts/default.yaml"


def test_benchmarks_are_found_by_folder_and_flavor(folder):
    ours = [each for each in find_benchmarks() if folder in each.path.parents]
    assert [(each.name, each.num_repeats) for each in ours] == [("sums", 4), ("sums/hard", 1)]


def test_prepare_script_creates_the_configured_file(folder):
    made = BenchmarkConfig.from_config_path(folder / "config.yaml").prepare(count=3)
    assert made == folder / "data" / "sums.jsonl"
    assert len(made.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (PREPARE.replace("sums.jsonl", "other.jsonl"), r"other\.jsonl.*but .*config\.yaml names jsonl_fpath"),
        (PREPARE.replace("path.write_text", "str"), "did not write this file"),
        ("made = 1\n", r"Define prepare\(\*\*kwargs\) -> Path"),
        (None, r"script 'benchmarks/sums/prepare\.py' not found"),
    ],
)
def test_prepare_script_with_other_output_is_reported(folder, program, expected):
    if program is None:
        (folder / "prepare.py").unlink()
    else:
        (folder / "prepare.py").write_text(program)
    with pytest.raises(DataError, match=expected):
        BenchmarkConfig.from_config_path(folder / "config.yaml").prepare()


def test_configuration_without_benchmark_is_rejected(folder):
    (folder / "config.yaml").write_text(CONFIG.replace("type: benchmark", "type: example"))
    with pytest.raises(DataError, match="no agent has a dataset with type: benchmark"):
        BenchmarkConfig.from_config_path(folder / "config.yaml")
    with pytest.raises(DataError, match=r"file 'benchmarks/none\.yaml'"):
        BenchmarkConfig.from_config_path("benchmarks/none.yaml")
