"""From a row's task to its environment, by class path."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from nemo_gym import PARENT_DIR, WORKING_DIR, DataError, EnvironmentFailed, InvalidTask
from nemo_gym.jsonl import read_rows

logger = logging.getLogger(__name__)

LINES = ".jsonl"


def is_file(dataset: str) -> bool:
    """Whether a dataset is named by a file rather than by a class path."""
    return dataset.endswith(LINES)


class Tasks:
    """The environments of one server. Importing and making them may take long: call it in a thread."""

    def __init__(
        self,
        environment: str | None,
        environment_kwargs: Mapping[str, Any],
        dataset: str | None,
        dataset_kwargs: Mapping[str, Any],
    ) -> None:
        self._environment = environment
        self._environment_kwargs = environment_kwargs
        self._dataset = dataset
        self._dataset_kwargs = dataset_kwargs
        self._loading = Lock()

    def environment_of(self, task_idx: int, task: Mapping[str, Any] | None) -> Any:
        """A new environment for a row. Raises `EnvironmentFailed`, which names the class path and what is wrong."""
        if self._environment is None:
            if task is not None:
                raise InvalidTask(
                    f"task: the row brings arguments, but '{self._dataset}' makes its environments by task_idx alone"
                )
            return _checked(self._made_by_dataset(task_idx), f"dataset: {self._dataset}")
        with self._loading:
            make = self._class
        given = self._line(task_idx) if task is None else task
        what = f"environment: {self._environment}"
        return _checked(_made(f"{what} (task_idx {task_idx})", make, **{**self._environment_kwargs, **given}), what)

    def _made_by_dataset(self, task_idx: int) -> Any:
        with self._loading:
            dataset = self._tasks
        if not callable(getattr(dataset, "get_new_env_by_idx", None)):
            raise EnvironmentFailed(f"dataset: '{self._dataset}' is not a TaskDataset: it has no get_new_env_by_idx")

        def make() -> Any:
            try:
                return dataset.get_new_env_by_idx(task_idx)
            except NotImplementedError:
                # A dataset without an order: any of its environments will do.
                return dataset.get_new_env()

        return _made(f"dataset: {self._dataset}: get_new_env_by_idx({task_idx})", make)

    def _line(self, task_idx: int) -> Mapping[str, Any]:
        if self._dataset is None:
            return {}
        with self._loading:
            lines = self._lines
        if task_idx >= len(lines):
            raise InvalidTask(f"task_idx: there is no task {task_idx}, '{self._dataset}' has {len(lines)}")
        return lines[task_idx]

    @cached_property
    def _class(self) -> Callable[..., Any]:
        return load_by_path(str(self._environment), "environment")

    @cached_property
    def _tasks(self) -> Any:
        make = load_by_path(str(self._dataset), "dataset")
        return _made(f"dataset: {self._dataset}", make, **self._dataset_kwargs)

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        given = Path(str(self._dataset)).expanduser()
        path = next((path for path in (WORKING_DIR / given, PARENT_DIR / given) if path.is_file()), given)
        try:
            return list(read_rows(path))
        except (OSError, DataError) as error:
            raise EnvironmentFailed(f"dataset: '{self._dataset}' cannot be read: {error}") from error


def load_by_path(path: str, key: str) -> Callable[..., Any]:
    """The class of a path, `module:Class` or `module.Class`. Raises `EnvironmentFailed`, which names the key."""
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        raise EnvironmentFailed(f"{key}: '{path}' is not a class path; write module:Class")
    try:
        # Only here: it comes with the extra `aviary`, and takes half a second.
        import aviary.core  # noqa: F401
    except ImportError as error:
        raise EnvironmentFailed(
            f"{key}: '{path}' needs Aviary, which is not installed: pip install 'nemo-gym[aviary]'"
        ) from error
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # A module runs whatever its author wrote, and may fail in any way.
        raise EnvironmentFailed(
            f"{key}: '{path}': the module cannot be imported ({type(error).__name__}: {error})"
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        near = get_close_matches(name, [each for each in vars(module) if callable(getattr(module, each))], n=1)
        hint = f". Did you mean '{near[0]}'?" if near else ""
        raise EnvironmentFailed(f"{key}: '{path}': the module has no class '{name}'{hint}")
    return found


def _made(what: str, make: Callable[..., Any], **kwargs: Any) -> Any:
    try:
        return make(**kwargs)
    except Exception as error:
        # The author's own code: its traceback belongs into the log, its name into the record.
        logger.exception("%s failed", what)
        raise EnvironmentFailed(f"{what} raised {type(error).__name__}: {error}") from error


def _checked(made: Any, what: str) -> Any:
    missing = [name for name in ("reset", "step") if not callable(getattr(made, name, None))]
    if missing:
        raise EnvironmentFailed(
            f"{what} made a {type(made).__name__}, which is no environment: it has no {missing[0]}"
        )
    return made
