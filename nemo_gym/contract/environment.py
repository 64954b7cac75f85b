"""One environment's folder, opened: its server's class and settings, the rows of its examples, its oracle."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nemo_gym.config import RunConfig, ServerConfig, load
from nemo_gym.config.overrides import parse_override
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.sources import CONFIG_PATHS
from nemo_gym.data.gather import file_of
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.errors import DataError, LaunchError, UserError
from nemo_gym.jsonl import read_rows
from nemo_gym.schemas.items import EasyInputMessage, FunctionToolCall
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.serve import complete_server_class, load_module, typed_config
from nemo_gym.testing import FakeModel, build_server

Row = dict[str, Any]
Solution = list["str | FunctionToolCall | EasyInputMessage"]
"""A perfect attempt: texts and tool calls, in order, with what a user says in between."""

SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
ORACLE_FILE = "oracle.py"


@dataclass(frozen=True)
class Oracle:
    """A folder's `oracle.py`."""

    solve: Callable[[Row], Solution]
    full_reward: Callable[[Row], float]
    """What a perfect attempt earns: 1, unless `oracle.py` defines a function of this name."""
    asks_for_something: Callable[[Row], bool]
    """Whether doing nothing must earn less: yes, unless `oracle.py` defines a function of this name."""


@dataclass(frozen=True)
class Environment:
    """A folder's server as its own config describes it."""

    folder: Path
    name: str
    """The server's, in the config."""
    server_class: type[SimpleServer]
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    """The example rows, as they are sent."""
    oracle: Oracle | None

    def server(self, *, judge_agrees: bool = True) -> SimpleServer:
        """A fresh one; its judge, should it have one, always gives the first of its labels, or always the last."""
        labels = labels_in(self.settings) or ["yes", "no"]
        model = FakeModel([labels[0 if judge_agrees else -1]])
        return build_server(self.server_class, {"name": self.name, **self.settings}, model=model)


@contextmanager
def open_environment(folder: Path, overrides: Sequence[str] = ()) -> Iterator[Environment]:
    """The environment of a folder; its modules are imported from there for as long as the block lasts.

    `overrides` are words of the command line: `++name.resources_servers.….key=value` changes its config,
    `+config_paths=[…]` names another one. Raises `ConfigError`, `LaunchError` or `DataError` where it cannot be
    opened.
    """
    names_config = any(parse_override(word).path[0] == CONFIG_PATHS for word in overrides)
    configs = [] if names_config else [own_config(folder)]
    run = load([*configs, SAMPLE_MODEL], overrides, skip_dotenv=True, require_servers=True)
    server = own_servers(run, folder)[0]
    search_path = list(sys.path)
    try:
        settings = ProcessSettings.of(run, server, cookie_secret="of no importance: nothing is served")
        with _told_by_place(folder):
            server_class = complete_server_class(load_module(settings), settings)
            oracle = _oracle_of(folder)
        typed_config(server_class, settings)
        rows = tuple(example_rows(run, server.name))
        yield Environment(folder, server.name, server_class, server.settings, rows, oracle)
    finally:
        # A server's process looks into its own folder first; this one may look into many folders.
        sys.path[:] = search_path


def fault_in(folder: Path, error: Exception) -> str:
    """What code of this folder raised, behind the last of its lines that led there: `app.py:12: KeyError: 'count'`."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((Path(error.filename), error.lineno))
        said = f"{type(error).__name__}: {error.msg}"
    own = [(path, line) for path, line in frames if folder.resolve() in path.resolve().parents]
    return f"{own[-1][0].resolve().relative_to(folder.resolve())}:{own[-1][1]}: {said}" if own else said


@contextmanager
def _told_by_place(folder: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise LaunchError(f"{folder}: cannot be imported. {fault_in(folder, error)}") from error


def own_config(folder: Path) -> Path:
    """The config that is named after the folder, else its only one."""
    configs = sorted((folder / "configs").glob("*.yaml"))
    named = [path for path in configs if path.stem == folder.name]
    if not named and len(configs) != 1:
        raise DataError(f"{folder / 'configs'}: expected {folder.name}.yaml, found {[path.name for path in configs]}.")
    return (named or configs)[0]


def own_servers(run: RunConfig, folder: Path) -> list[ServerConfig]:
    """The resources servers of a run that are started from this folder."""
    found = [server for server in run.servers_of("resources_servers") if server.folder.resolve() == folder.resolve()]
    if not found:
        files = ", ".join(map(str, run.config_paths))
        raise DataError(f"{files}: no resources server of the config is started from {folder}.")
    return found


def example_rows(run: RunConfig, server_name: str) -> Iterator[Row]:
    """The rows of the example datasets of all agents that play on this server, as they are sent."""
    for agent in run.servers_of("responses_api_agents"):
        if (agent.settings.get("resources_server") or {}).get("name") != server_name:
            continue
        for dataset in agent.datasets:
            if dataset.type != "example":
                continue
            path = file_of(agent, dataset)
            prompt = load_prompt_config(dataset.prompt_config) if dataset.prompt_config else None
            for row in read_rows(path):
                yield apply_prompt_to_row(row, prompt) if prompt else row


def labels_in(settings: Mapping[str, Any]) -> list[str] | None:
    """The verdicts that a judge's settings name, wherever in them they stand: the agreeing one first."""
    equal = [value for key, value in settings.items() if key.endswith("equal_label") and isinstance(value, str)]
    if equal:
        return equal if "not" not in next(key for key in settings if key.endswith("equal_label")) else equal[::-1]
    if isinstance(settings.get("labels"), list):
        return [str(label) for label in settings["labels"]]
    inner = (labels_in(value) for value in settings.values() if isinstance(value, Mapping))
    return next((labels for labels in inner if labels), None)


def _oracle_of(folder: Path) -> Oracle | None:
    path = folder / ORACLE_FILE
    if not path.is_file():
        return None
    module = _import(path, f"{folder.parent.name}.{folder.name}.oracle")
    if not callable(getattr(module, "solve", None)):
        raise DataError(f"{path}: an oracle defines solve(row), which gives the texts and calls of a perfect attempt.")
    return Oracle(
        solve=module.solve,
        full_reward=getattr(module, "full_reward", lambda row: 1.0),
        asks_for_something=getattr(module, "asks_for_something", lambda row: True),
    )


def _import(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
