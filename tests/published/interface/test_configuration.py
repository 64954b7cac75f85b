"""Configuration access in the published style, and the settings of collections and metrics."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

import nemo_gym
from nemo_gym import global_config, rollout_collection, server_utils
from nemo_gym.errors import ConfigError, HeadServerNotFoundError, NoServerInstancesError, PortTakenError
from nemo_gym.global_config import DictConfig, GlobalConfigDictParser, GlobalConfigDictParserConfig, OmegaConf

ROOT = Path(__file__).parents[3]


def test_pass_majority_metrics_return_four_values():
    tasks = [[{"reward": 1.0, "said": "a"}, {"reward": 0.0, "said": "b"}], [{"reward": 1.0, "said": "c"}] * 2]
    computed = importlib.import_module("nemo_gym.reward_profile").compute_pass_majority_metrics(
        tasks, answer_key="said"
    )
    metrics, all_score_dicts, score_names, max_k = computed
    assert (metrics["pass@1[avg-of-2]/accuracy"], metrics["pass@2/accuracy"], max_k) == (75.0, 100.0, 2)
    assert metrics["majority@2/accuracy"] == 75.0
    assert set(score_names) >= {"accuracy"}
    assert [[scores["accuracy"] for scores in task] for task in all_score_dicts] == [[1.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("wrapped", [DictConfig, dict])
def test_instance_settings_are_two_levels_down(wrapped):
    config = wrapped({"mine": {"responses_api_models": {"m": {"host": "h", "port": 1}, "n": {"port": 2}}}})
    assert global_config.get_first_server_config_dict(config, "mine") == {"host": "h", "port": 1}


def test_the_folders_of_a_checkout():
    assert Path(nemo_gym.__file__).parent == nemo_gym.ROOT_DIR
    assert nemo_gym.ROOT_DIR.parent == nemo_gym.PARENT_DIR
    assert nemo_gym.CACHE_DIR == nemo_gym.WORKING_DIR / "cache"
    assert nemo_gym.RESULTS_DIR == nemo_gym.WORKING_DIR / "results"


def test_an_imported_file_is_not_the_entrypoint():
    assert server_utils.is_nemo_gym_fastapi_entrypoint(__file__) is False


def test_open_port_is_not_disallowed():
    port = global_config.find_open_port()
    with socket.create_server(("127.0.0.1", port)):
        assert global_config.find_open_port() != port
    assert global_config.find_open_port([port]) != port
    with pytest.raises(PortTakenError):
        global_config.find_open_port(disallowed_ports=range(65536), max_retries=2)


@pytest.mark.parametrize(("given", "attempts"), [(None, 3), ("7", 7)])
def test_environment_variable_sets_rollout_attempts(monkeypatch, given, attempts):
    monkeypatch.delenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", raising=False)
    if given is not None:
        monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", given)
    assert rollout_collection._get_max_rollout_attempts() == attempts


PATCHED = DictConfig(
    {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "mine": {"resources_servers": {"m": {"host": "127.0.0.1", "port": 2}}},
    }
)


def test_patched_configuration_of_a_module_is_used():
    with patch("nemo_gym.server_utils.get_global_config_dict", return_value=PATCHED):
        assert server_utils.get_server_url("mine") == "http://127.0.0.1:2"
        assert server_utils.ServerClient.load_head_server_config().port == 1
    with (
        patch("nemo_gym.rollout_collection.get_global_config_dict", return_value=PATCHED),
        pytest.raises(HeadServerNotFoundError, match=r"http://127\.0\.0\.1:1/"),
    ):
        rollout_collection.RolloutCollectionHelper().setup_server_client()
    # Published callers catch it as a `ValueError`.
    assert issubclass(HeadServerNotFoundError, ValueError)


PROCESS = """
from nemo_gym.global_config import (
    CACHE_DIR_KEY_NAME, DISALLOWED_PORTS_KEY_NAME, HF_TOKEN_KEY_NAME, RESULTS_DIR_KEY_NAME, get_global_config_dict,
    get_hf_token, maybe_get_global_config_dict,
)
from nemo_gym.server_utils import get_server_url

print(maybe_get_global_config_dict())
config = get_global_config_dict()
print(get_global_config_dict() is config, maybe_get_global_config_dict() is config)
print(get_hf_token(), config[HF_TOKEN_KEY_NAME], get_server_url("mine"))
print([key in config for key in (CACHE_DIR_KEY_NAME, DISALLOWED_PORTS_KEY_NAME, RESULTS_DIR_KEY_NAME)])
"""


@pytest.mark.parametrize("given", ["by a variable", "by the command line"])
def test_process_loads_its_configuration_lazily_and_once(tmp_path, given):
    config = {"hf_token": "hf_0nly4t3st", "mine": {"resources_servers": {"example_single_tool_call": {
        "entrypoint": "app.py", "domain": "other", "host": "h", "port": 2,
    }}}}  # fmt: skip
    text = OmegaConf.to_yaml(OmegaConf.create(config))
    (tmp_path / "mine.yaml").write_text(text)
    by_variable = given == "by a variable"
    printed = subprocess.run(
        [sys.executable, "-c", PROCESS, *([] if by_variable else ["+config_paths=[mine.yaml]"])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), **({"NEMO_GYM_CONFIG_DICT": text} if by_variable else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    keys = "[False, False, False]" if by_variable else "[True, True, True]"
    assert printed.stdout.splitlines() == [
        "None", "True True", "hf_0nly4t3st hf_0nly4t3st http://h:2", keys,
    ], printed.stderr  # fmt: skip


def test_parser_reports_servers_and_missing_values():
    parser = GlobalConfigDictParser()
    block = {"entrypoint": "app.py", "domain": "other"}
    initial = DictConfig({"mine": {"resources_servers": {"example_single_tool_call": block}}, "plain": 1})
    parsed = parser.parse_no_environment(initial)
    assert parsed["plain"] == 1
    assert [server.name for server in parser.filter_for_server_instance_configs(parsed)] == ["mine"]
    parser.raise_on_no_server_instances(parsed)
    parser.detect_and_report_almost_servers(parsed)
    assert parser.collect_missing_value_paths(DictConfig({"a": {"b": "???"}, "c": "???", "d": 1})) == ["a.b", "c"]
    with pytest.raises(NoServerInstancesError):
        parser.raise_on_no_server_instances(DictConfig({"plain": 1}))
    with pytest.raises(ConfigError):
        parser.parse_no_environment(DictConfig({"mine": {"resources_servers": {"m": {"entrypoint": "app.py"}}}}))
    config = GlobalConfigDictParserConfig(
        dotenv_path="env.yaml", initial_global_config_dict=initial, skip_load_from_cli=True, skip_load_from_dotenv=True
    )
    assert parser.parse(config)["plain"] == 1
    assert isinstance(GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, Mapping | DictConfig)


def test_collection_accepts_all_published_keys(tmp_path):
    keys = {
        "agent_name": "a", "input_jsonl_fpath": "in.jsonl", "output_jsonl_fpath": str(tmp_path / "out.jsonl"),
        "limit": 5, "num_repeats": {"a": 2, "_default": 1}, "num_repeats_add_seed": True, "resume_from_cache": True,
        "prompt_config": "p.yaml", "skills": {"path": "skills"}, "num_samples_in_parallel": 4,
        "responses_create_params": {"temperature": 0.5}, "disable_aggregation": True, "upload_rollouts": False,
        "rollout_collection_driver": None,
    }  # fmt: skip
    job = rollout_collection.RolloutCollectionConfig.model_validate(keys)
    assert (job.limit, job.num_samples_in_parallel, job.skills.path) == (5, 4, "skills")
    unset = {"num_samples_in_parallel": None, "limit": None, "agent_name": None, "prompt_config": None, "skills": None}
    usual = type(job)(input_jsonl_fpath="in.jsonl", output_jsonl_fpath="out.jsonl")
    assert type(job).model_validate({**usual.model_dump(), **unset}) == usual
    assert (job.responses_create_params, job.prompt_config) == ({"temperature": 0.5}, "p.yaml")
