"""`nemo_gym.benchmarks`: a benchmark's folder, found by its name, and its data made by its own program."""

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


def test_a_benchmark_is_what_its_configuration_says(folder):
    benchmark = BenchmarkConfig.from_config_path("benchmarks/sums/config.yaml")
    assert (benchmark.name, benchmark.agent_name, benchmark.num_repeats) == ("sums", "sums_agent", 4)
    assert benchmark.path == folder / "config.yaml"
    assert benchmark.dataset.prompt_config == "benchmarks/sums/prompts/default.yaml"


def test_benchmarks_are_found_by_folder_and_flavor(folder):
    ours = [each for each in find_benchmarks() if folder in each.path.parents]
    assert [(each.name, each.num_repeats) for each in ours] == [("sums", 4), ("sums/hard", 1)]


def test_its_program_makes_the_file_that_is_configured(folder):
    made = BenchmarkConfig.from_config_path(folder / "config.yaml").prepare(count=3)
    assert made == folder / "data" / "sums.jsonl"
    assert len(made.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (PREPARE.replace("sums.jsonl", "other.jsonl"), r"other\.jsonl.*but .*config\.yaml names jsonl_fpath"),
        (PREPARE.replace("path.write_text", "str"), "did not write it"),
        ("made = 1\n", r"defines prepare\(\*\*kwargs\) -> Path"),
        (None, r"has no program 'benchmarks/sums/prepare\.py'"),
    ],
)
def test_a_program_that_makes_something_else_is_told(folder, program, told):
    if program is None:
        (folder / "prepare.py").unlink()
    else:
        (folder / "prepare.py").write_text(program)
    with pytest.raises(DataError, match=told):
        BenchmarkConfig.from_config_path(folder / "config.yaml").prepare()


def test_a_configuration_without_a_benchmark_is_none(folder):
    (folder / "config.yaml").write_text(CONFIG.replace("type: benchmark", "type: example"))
    with pytest.raises(DataError, match="no agent of this configuration has a dataset with type: benchmark"):
        BenchmarkConfig.from_config_path(folder / "config.yaml")
    with pytest.raises(DataError, match=r"there is no file 'benchmarks/none\.yaml'"):
        BenchmarkConfig.from_config_path("benchmarks/none.yaml")
