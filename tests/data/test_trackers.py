"""Export of a run to the experiment trackers that the configuration names."""

from __future__ import annotations

import os
from importlib.util import find_spec

import orjson
import pytest

from nemo_gym.data.exporters import flat_metrics

pytestmark = pytest.mark.slow

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

def note(*values):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps(values) + "\\n")
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

def init(**settings):
    note("init", settings)
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
    return lambda *values: note(name, *values)
"""
)


@pytest.fixture
def trackers(workplace):
    """Fakes of both packages, which record their calls."""
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


def test_wandb_receives_masked_config_metrics_and_rollouts(trackers):
    _, (login, init, metrics, rollouts, finish) = collected(trackers, *WANDB)
    assert (login, finish) == (["login", "secret-of-mine"], ["finish"])
    assert (init[1]["project"], init[1]["name"]) == ("gym", "first")
    assert init[1]["config"]["wandb_api_key"] == "****"
    assert AGENT in init[1]["config"]
    assert metrics[1][f"{AGENT}/mean/reward"] == metrics[1][f"key_metrics/{AGENT}/mean/reward"]
    table = rollouts[1]["rollouts"]
    lines = (trackers.folder / "out.jsonl").read_text().splitlines()
    assert (table["columns"], table["data"]) == (["rollout"], [[line] for line in lines])


def test_mlflow_receives_metrics_under_valid_names(trackers):
    _, noted = collected(trackers, *MLFLOW, "+upload_rollouts=false")
    assert [each[0] for each in noted] == [
        "set_tracking_uri", "set_experiment", "start_run", "log_dict", "log_metrics",
    ]  # fmt: skip
    assert noted[2] == ["start_run", "first", "token-of-mine"]
    assert noted[3][1]["mlflow_tracking_token"] == "****"
    assert f"{AGENT}/mean/reward" in noted[4][1]
    assert not any("@" in name or "[" in name for name in noted[4][1])


@pytest.mark.parametrize("words", [WANDB[:2], MLFLOW[:2], ()])
def test_incompletely_configured_tracker_receives_nothing(trackers, words):
    finished, noted = collected(trackers, *words)
    assert (noted, "note:" in finished.err) == ([], False)


def test_tracker_failure_is_noted_and_run_is_kept(trackers):
    finished, _ = collected(trackers, *WANDB, REFUSES="1")
    assert finished.err.splitlines()[-1] == "note: export to wandb failed: this key is not known"
    assert (trackers.folder / "out.jsonl").exists()


def test_missing_tracker_package_is_noted(workplace):
    workplace.write("fakes/wandb.py", "raise ImportError")
    finished, _ = collected(workplace, *WANDB)
    expected = "note: export to wandb failed: the package is not installed. Run: pip install wandb"
    assert finished.err.splitlines()[-1] == expected


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_real_wandb_package_accepts_a_run(workplace):
    key = f"+wandb_api_key={'0' * 40}"
    finished, _ = collected(workplace, *WANDB[:2], key, WANDB_MODE="offline", WANDB_DIR=str(workplace.folder))
    assert "export to wandb failed" not in finished.err
    assert list(workplace.folder.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_real_mlflow_package_accepts_a_run(workplace):
    place = workplace.folder / "tracked"
    words = (f"+mlflow_tracking_uri={place.as_uri()}", *MLFLOW[1:])
    finished, _ = collected(workplace, *words, MLFLOW_ALLOW_FILE_STORE="true")
    assert "export to mlflow failed" not in finished.err
    assert list(place.glob(f"*/*/metrics/{AGENT}/mean/reward"))
    assert list(place.glob("*/*/artifacts/rollouts.json"))


def test_only_scalar_values_are_sent():
    values = {"mean/reward": 0.5, "per_sample_aggregate": {"accuracy": [1.0]}, "name": "x"}
    metrics = [{"agent_ref": {"name": "a"}, "agent_metrics": values, "key_metrics": {"mean/reward": 0.5}}]
    assert flat_metrics(metrics) == {"a/mean/reward": 0.5, "a/name": "x", "key_metrics/a/mean/reward": 0.5}
