"""Create the environments of rows from class paths."""

from __future__ import annotations

import importlib
import inspect
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
    """Return whether a dataset is a file rather than a class path."""
    return dataset.endswith(LINES)


class Tasks:
    """The factory of a server's environments. Call its methods in a thread, because imports may be slow."""

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
        """Return a new environment for a row.

        Raises `InvalidTask` if the row's index or arguments are at fault. For any other problem, raises
        `EnvironmentFailed`, which names the class path or the dataset's file.
        """
        if self._environment is None:
            if task is not None:
                raise InvalidTask(
                    f"task: the row has arguments, but '{self._dataset}' creates environments from task_idx alone. "
                    "Remove `task`"
                )
            return _checked(self._made_by_dataset(task_idx), f"dataset: {self._dataset}")
        with self._loading:
            make = self._class
        given = self._line(task_idx) if task is None else task
        what = f"environment: {self._environment}"
        where = f"{what} (task_idx {task_idx})"
        self._check_arguments(make, given, where)
        # If the row has arguments, a `ValueError` means that one of them is invalid, so the row is at fault.
        row_faults = (ValueError,) if given else ()
        return _checked(_made(where, make, row_faults, **{**self._environment_kwargs, **given}), what)

    def _check_arguments(self, make: Callable[..., Any], given: Mapping[str, Any], what: str) -> None:
        """Raise `InvalidTask` if the row's arguments do not fit the environment. Ignore errors in the config's."""
        try:
            signature = inspect.signature(make)
            signature.bind_partial(**self._environment_kwargs)
        except (TypeError, ValueError):
            # The signature is unknown, or the config's arguments are wrong. Skip the check, because calling the class
            # reports such errors.
            return
        try:
            signature.bind(**{**self._environment_kwargs, **given})
        except TypeError as error:
            raise InvalidTask(f"task: {what}: {error}. Fix the row's `task`.") from error

    def _made_by_dataset(self, task_idx: int) -> Any:
        with self._loading:
            dataset = self._tasks
        if not callable(getattr(dataset, "get_new_env_by_idx", None)):
            raise EnvironmentFailed(f"dataset: '{self._dataset}' is not a TaskDataset: get_new_env_by_idx is missing")

        def make() -> Any:
            try:
                return dataset.get_new_env_by_idx(task_idx)
            except NotImplementedError:
                # The dataset has no order, so any environment is valid.
                return dataset.get_new_env()

        return _made(f"dataset: {self._dataset}: get_new_env_by_idx({task_idx})", make, (IndexError,))

    def _line(self, task_idx: int) -> Mapping[str, Any]:
        if self._dataset is None:
            return {}
        with self._loading:
            lines = self._lines
        if task_idx >= len(lines):
            raise InvalidTask(f"task_idx: task {task_idx} does not exist; '{self._dataset}' has {len(lines)} tasks")
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
            raise EnvironmentFailed(
                f"dataset: '{self._dataset}' cannot be read. Check its path and content: {error}"
            ) from error


def load_by_path(path: str, key: str) -> Callable[..., Any]:
    """Import a class by its path, `module:Class` or `module.Class`. Raises `EnvironmentFailed`, which names `key`."""
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        raise EnvironmentFailed(f"{key}: '{path}' is not a class path. Write module:Class")
    try:
        # Import it lazily, because it needs the extra `aviary` and the import takes half a second.
        import aviary.core  # noqa: F401
    except ImportError as error:
        raise EnvironmentFailed(f"{key}: '{path}' needs Aviary. Install it: pip install 'nemo-gym[aviary]'") from error
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # The author's module may raise any exception.
        raise EnvironmentFailed(
            f"{key}: '{path}': the module cannot be imported ({type(error).__name__}: {error})"
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        near = get_close_matches(name, [each for each in vars(module) if callable(getattr(module, each))], n=1)
        hint = f". Did you mean '{near[0]}'?" if near else ""
        raise EnvironmentFailed(f"{key}: '{path}': the module has no class '{name}'{hint}")
    return found


def _made(what: str, make: Callable[..., Any], row_faults: tuple[type[Exception], ...] = (), /, **kwargs: Any) -> Any:
    try:
        return make(**kwargs)
    except row_faults as error:
        raise InvalidTask(f"{what} raised {type(error).__name__}: {error}. Fix the row.") from error
    except Exception as error:
        # The author needs the traceback in the log, because the rollout's record gets only the message.
        logger.exception("%s failed", what)
        raise EnvironmentFailed(f"{what} raised {type(error).__name__}: {error}") from error


def _checked(made: Any, what: str) -> Any:
    missing = [name for name in ("reset", "step") if not callable(getattr(made, name, None))]
    if missing:
        raise EnvironmentFailed(
            f"{what} created a {type(made).__name__}, which is not an environment: '{missing[0]}' is missing"
        )
    return made
