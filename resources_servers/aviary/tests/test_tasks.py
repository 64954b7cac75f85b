"""Creating environments by class path, and the messages if that fails."""

import re
from typing import Any

import pytest

from nemo_gym import DataError, EnvironmentFailed, InvalidTask
from nemo_gym.testing import make_server

# See test_app.py.
pytest.importorskip("aviary.core", reason="Aviary is an extra: pip install 'nemo-gym[aviary]'")

from aviary.core import DummyEnv

from resources_servers.aviary.app import AviaryServer
from resources_servers.aviary.tasks import Tasks

HERE = __name__
NO_CLASS = "a value"


class Numbered:
    """A dataset of three environments."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def get_new_env_by_idx(self, idx: int) -> Any:
        return DummyEnv(task=[f"{self.prefix}{number}" for number in range(3)][idx])


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("the disk is gone")


def tasks(environment=None, dataset=None, environment_kwargs=None, dataset_kwargs=None):
    return Tasks(environment, environment_kwargs or {}, dataset, dataset_kwargs or {})


@pytest.mark.parametrize("path", ["aviary.core:DummyEnv", "aviary.core.DummyEnv"])
def test_class_path_and_arguments_create_an_environment(path):
    made = tasks(path, environment_kwargs={"task": "one", "end_immediately": False}).environment_of(7, None)
    assert (type(made), made.task, made.end_immediately) == (DummyEnv, "one", False)


def test_row_arguments_override_the_config():
    made = tasks("aviary.core:DummyEnv", environment_kwargs={"task": "one"}).environment_of(0, {"task": "two"})
    assert made.task == "two"


def test_each_row_gets_its_own_environment():
    source = tasks("aviary.core:DummyEnv")
    assert source.environment_of(0, None) is not source.environment_of(0, None)


def test_file_contains_the_arguments_of_each_task(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task": "one"}\n{"task": "two"}\n')
    source = tasks("aviary.core:DummyEnv", dataset=str(path))
    assert [source.environment_of(each, None).task for each in (1, 0)] == ["two", "one"]
    with pytest.raises(InvalidTask, match=r"task 2 does not exist; '.*tasks.jsonl' has 2 tasks"):
        source.environment_of(2, None)


def test_dataset_creates_the_environment_of_an_index():
    source = tasks(dataset=f"{HERE}:Numbered", dataset_kwargs={"prefix": "no. "})
    assert source.environment_of(2, None).task == "no. 2"


def test_dataset_without_indices_gives_any_environment():
    assert isinstance(tasks(dataset="aviary.core:DummyTaskDataset").environment_of(99, None), DummyEnv)


def test_failure_to_create_an_environment_is_explained():
    cases = [
        ({"environment": "DummyEnv"}, "environment: 'DummyEnv' is not a class path. Write module:Class"),
        ({"environment": "aviary.core:"}, "is not a class path"),
        ({"environment": "no.such.module:Env"}, r"cannot be imported \(ModuleNotFoundError: No module named 'no'\)"),
        ({"environment": "aviary.core:DummyEnf"}, "has no class 'DummyEnf'. Did you mean 'DummyEnv'?"),
        ({"environment": f"{HERE}:NO_CLASS"}, "has no class 'NO_CLASS'"),
        ({"environment": "builtins:dict"}, "created a dict, which is not an environment: 'reset' is missing"),
        (
            {"environment": "aviary.core:DummyEnv", "environment_kwargs": {"colour": 1}},
            r"environment: aviary.core:DummyEnv \(task_idx 5\) raised TypeError: .*'colour'",
        ),
        ({"environment": f"{HERE}:Broken"}, "raised RuntimeError: the disk is gone"),
        ({"environment": "aviary.core:DummyEnv", "dataset": "no_such.jsonl"}, "'no_such.jsonl' cannot be read"),
        ({"dataset": "aviary.core:NoDataset"}, "dataset: 'aviary.core:NoDataset'"),
        ({"dataset": "aviary.core:DummyEnv"}, "is not a TaskDataset: get_new_env_by_idx is missing"),
        ({"dataset": f"{HERE}:Broken"}, "dataset: .*:Broken raised RuntimeError: the disk is gone"),
    ]
    wrong = []
    for settings, problem in cases:
        try:
            wrong.append((settings, problem, tasks(**settings).environment_of(5, None)))
        except EnvironmentFailed as error:
            if not re.search(problem, str(error)):
                wrong.append((settings, problem, str(error)))
    assert wrong == []


GSM8K = "resources_servers.aviary.gsm8k_env:Gsm8kEnvironment"


def test_unfitting_row_is_an_invalid_task():
    cases = [
        ({"dataset": f"{HERE}:Numbered"}, None, r"get_new_env_by_idx\(5\) raised IndexError.*Fix the row"),
        ({"environment": GSM8K}, None, r"\(task_idx 5\): missing a required argument: 'question'. Fix the row"),
        ({"environment": GSM8K}, {"question": "How many?"}, "missing a required argument: 'answer'"),
        ({"environment": GSM8K}, {"question": "?", "answer": "7", "hint": "8"}, "unexpected keyword argument 'hint'"),
        (
            {"environment": GSM8K},
            {"question": "How many?", "answer": "7"},
            "must end with '####' and the final answer",
        ),
    ]
    wrong = []
    for settings, task, problem in cases:
        try:
            wrong.append((settings, task, tasks(**settings).environment_of(5, task)))
        except InvalidTask as error:
            if not re.search(problem, str(error)):
                wrong.append((settings, task, str(error)))
    assert wrong == []


def test_dataset_rejects_arguments_of_a_row():
    with pytest.raises(InvalidTask, match="creates environments from task_idx alone"):
        tasks(dataset=f"{HERE}:Numbered").environment_of(0, {"task": "one"})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dataset": None}, "set an environment's class path"),
        ({"dataset": "tasks.jsonl"}, "set an environment's class path"),
        ({"environment": "aviary.core:DummyEnv"}, "creates its own environments"),
    ],
)
def test_config_needs_exactly_one_source(settings, problem):
    with pytest.raises(DataError, match=problem):
        make_server(AviaryServer, **settings)
