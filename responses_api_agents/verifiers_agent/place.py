"""The settings of a worker: its interpreter, its tasks and its limits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl

import yaml
from pydantic import BaseModel, Field, field_validator

from nemo_gym import DataError, find_path
from nemo_gym.jsonl import JsonObject

MEGABYTE = 2**20


class Framework(NamedTuple):
    """A package that plays episodes in a worker, with an interpreter of its own."""

    name: str
    module: str
    plays: str
    """Its word for a set of tasks."""
    installed: str
    """The arguments of `pip install`."""
    worker: Path
    """The program. Modules next to it, in `demo`, are found by name."""

    @property
    def variable(self) -> str:
        """The environment variable with the interpreter."""
        return f"NEMO_GYM_{self.name.upper()}_PYTHON"

    @property
    def of_make(self) -> Path:
        """Where `make borders-…` installs the package."""
        return Path(f".venv-{self.name}/bin/python")


class WorkerPlace(BaseModel):
    """The settings of any worker."""

    framework: ClassVar[Framework]

    python: str | None = None
    """The interpreter that has the framework. By default this one, or that of `make borders-…`."""
    start_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds for the worker to import the tasks and to start their servers."""
    silence_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds without a sign of life, after which the worker is killed and its rollouts fail."""
    largest_episode_mb: float = Field(default=64.0, gt=0)

    @property
    def ident(self) -> str:
        """The name of the tasks, without their settings."""
        raise NotImplementedError

    @property
    def most_bytes(self) -> int:
        return int(self.largest_episode_mb * MEGABYTE)

    def interpreter(self) -> str:
        """Return the interpreter to use. Raise `DataError` if none has the framework."""
        if self.python is not None:
            return self.python
        if importlib.util.find_spec(self.framework.module) is not None:
            return sys.executable
        if (found := find_path(self.framework.of_make, Path.is_file)) is not None:
            return str(found)
        raise DataError(
            f"the {self.framework.plays} '{self.ident}' needs an interpreter with {self.framework.name}. Run `pip "
            f"install {self.framework.installed}` in a virtual environment of its own, and set "
            f"{self.framework.variable} or `python:` to its interpreter."
        )

    def first_line(self, listed: int) -> JsonObject:
        """Return the first message to a worker. With `listed`, it only lists tasks: so many of an endless set."""
        raise NotImplementedError


class WorkerSettings(WorkerPlace):
    """The settings of a worker of verifiers."""

    framework = Framework(
        "verifiers", "verifiers", "taskset", "verifiers==0.4.0 uv", Path(__file__).with_name("worker.py")
    )

    taskset: str
    """The module of the taskset, with settings if it needs some: `my_taskset` or `textarena?game=Hangman-v0`."""
    split: str | None = None
    """The taskset's setting `split`, if it has one."""
    env: JsonObject = Field(default_factory=dict)
    """Further settings of verifiers' environment: `{id: best-of-n, n: 2}` or `{agent: {harness: {id: bash}}}`."""
    max_steps: int | None = Field(default=200, ge=1)
    """The maximum number of turns of each agent, unless the environment sets its own `max_turns`."""

    @field_validator("taskset")
    @classmethod
    def _names_a_taskset(cls, value: str) -> str:
        taskset_of(value)
        return value

    @field_validator("env")
    @classmethod
    def _has_no_taskset(cls, value: JsonObject) -> JsonObject:
        if "taskset" in value:
            raise ValueError("remove `taskset` here, and write its settings into the block's own `taskset`")
        return value

    @property
    def ident(self) -> str:
        """The name of the taskset, without its settings."""
        return str(taskset_of(self.taskset)["id"])

    def first_line(self, listed: int) -> JsonObject:
        own = {"taskset": taskset_of(self.taskset), "max_turns": self.max_steps, "most_bytes": self.most_bytes}
        return {**own, "split": self.split, "env": self.env, "list": listed}


def taskset_of(address: str) -> JsonObject:
    """Return the `id` and the settings of a taskset. Raise `ValueError` if the address is not ID or ID?KEY=VALUE&…."""
    ident, _, query = address.partition("?")
    if not ident or ident.strip() != ident:
        raise ValueError("expected the name of a taskset, such as my_taskset or my_taskset?size=10&task.limit=3")
    taskset: JsonObject = {"id": ident}
    for key, text in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        *outer, last = key.split(".")
        inner: Any = taskset
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ValueError(f"'{key}' and '{name}' are both settings. Write only one of them")
        try:
            inner[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            inner[last] = text
    return taskset
