"""A run is told where experiments are tracked, if the configuration names such a place."""

from __future__ import annotations

import os
from importlib.util import find_spec

import orjson
import pytest

from nemo_gym.export import flat_metrics

AGENT = "example_multi_step_simple_agent"
CONFIG = (
    "+config_paths=[resources_servers/example_multi_step/configs/example_multi_step.yaml,"
    "responses_api_models/sample_model/configs/sample_model.yaml]"
)
WANDB = ("+wandb_project=gym", "+wandb_name=first", "+wandb_api_key=secret-of-mine")
MLFLOW = (
    "+mlflow_tracking_uri=http://tracker", "+mlflow_tracking_token=token-of-mine", "+mlflow_experiment_name=gym",
    "+mlflow_run_name=first",
)  # fmt: skip
NOTES = """
import json, os

def note(*told):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps(told) + "\\n")
"""
FAKE_WANDB = (
    NOTES
    + """
class Error(Exception):
    pass

def login(key):
    if os.environ.get("REFUSES"):
        raise Error("this key is not known")
    note("login", key)

class Run:
    def log(self, values):
        note("log", values)

    def finish(self):
        note("finish")

def init(**told):
    note("init", told)
    return Run()

def Table(columns, data):
    return {"columns": columns, "data": data}
"""
)
FAKE_MLFLOW = (
    NOTES
    + """
from contextlib import nullcontext

def start_run(run_name):
    note("start_run", run_name, os.environ["MLFLOW_TRACKING_TOKEN"])
    return nullcontext()

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *told: note(name, *told)
"""
)


@pytest.fixture
def trackers(workplace):
    """Stand-ins of both packages, which write down what they are told."""
    workplace.write("fakes/wandb.py", FAKE_WANDB)
    workplace.write("fakes/mlflow/__init__.py", FAKE_MLFLOW)
    workplace.write("fakes/mlflow/exceptions.py", "class MlflowException(Exception):\n    pass\n")
    return workplace


def collected(workplace, *words, **env):
    found = os.pathsep.join(filter(None, [str(workplace.folder / "fakes"), os.environ.get("PYTHONPATH")]))
    fakes = {"PYTHONPATH": found, "NOTED": str(workplace.folder / "noted")}
    words = (CONFIG, "+split=example", "+output_jsonl_fpath=out.jsonl", "+head_server.port=0", *words)
    finished = workplace.run("ng_e2e_collect_rollouts", *words, **fakes, **env)
    assert finished.code == 0, finished.err
    noted = workplace.folder / "noted"
    return finished, [orjson.loads(line) for line in noted.read_bytes().splitlines()] if noted.exists() else []


def test_weights_and_biases_hears_of_the_masked_config_the_metrics_and_the_rollouts(trackers):
    _, (login, init, metrics, rollouts, finish) = collected(trackers, *WANDB)
    assert (login, finish) == (["login", "secret-of-mine"], ["finish"])
    assert (init[1]["project"], init[1]["name"]) == ("gym", "first")
    assert init[1]["config"]["wandb_api_key"] == "****"
    assert AGENT in init[1]["config"]
    assert metrics[1][f"{AGENT}/mean/reward"] == metrics[1][f"key_metrics/{AGENT}/mean/reward"]
    table = rollouts[1]["rollouts"]
    lines = (trackers.folder / "out.jsonl").read_text().splitlines()
    assert (table["columns"], table["data"]) == (["rollout"], [[line] for line in lines])


def test_mlflow_hears_of_the_same_under_names_that_it_takes(trackers):
    _, noted = collected(trackers, *MLFLOW, "+upload_rollouts=false")
    assert [each[0] for each in noted] == [
        "set_tracking_uri", "set_experiment", "start_run", "log_dict", "log_metrics",
    ]  # fmt: skip
    assert noted[2] == ["start_run", "first", "token-of-mine"]
    assert noted[3][1]["mlflow_tracking_token"] == "****"
    assert f"{AGENT}/mean/reward" in noted[4][1]
    assert not any("@" in name or "[" in name for name in noted[4][1])


@pytest.mark.parametrize("words", [WANDB[:2], MLFLOW[:2], ()])
def test_a_place_that_is_not_named_in_full_hears_of_nothing(trackers, words):
    finished, noted = collected(trackers, *words)
    assert (noted, "note:" in finished.err) == ([], False)


def test_what_a_tracker_refuses_is_noticed_and_the_run_is_kept(trackers):
    finished, _ = collected(trackers, *WANDB, REFUSES="1")
    assert finished.err.splitlines()[-1] == "note: nothing was sent to wandb: this key is not known"
    assert (trackers.folder / "out.jsonl").exists()


def test_a_tracker_whose_package_is_not_there_is_noticed(workplace):
    workplace.write("fakes/wandb.py", "raise ImportError")
    finished, _ = collected(workplace, *WANDB)
    told = "note: nothing was sent to wandb: the package is not installed: pip install wandb."
    assert finished.err.splitlines()[-1] == told


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_the_real_package_of_weights_and_biases_takes_a_run(workplace):
    key = f"+wandb_api_key={'0' * 40}"
    finished, _ = collected(workplace, *WANDB[:2], key, WANDB_MODE="offline", WANDB_DIR=str(workplace.folder))
    assert "nothing was sent" not in finished.err
    assert list(workplace.folder.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_the_real_package_of_mlflow_takes_a_run(workplace):
    place = workplace.folder / "tracked"
    words = (f"+mlflow_tracking_uri={place.as_uri()}", *MLFLOW[1:])
    finished, _ = collected(workplace, *words, MLFLOW_ALLOW_FILE_STORE="true")
    assert "nothing was sent" not in finished.err
    assert list(place.glob(f"*/*/metrics/{AGENT}/mean/reward"))
    assert list(place.glob("*/*/artifacts/rollouts.json"))


def test_only_plain_values_are_sent():
    told = {"mean/reward": 0.5, "per_sample_aggregate": {"accuracy": [1.0]}, "name": "x"}
    metrics = [{"agent_ref": {"name": "a"}, "agent_metrics": told, "key_metrics": {"mean/reward": 0.5}}]
    assert flat_metrics(metrics) == {"a/mean/reward": 0.5, "a/name": "x", "key_metrics/a/mean/reward": 0.5}
