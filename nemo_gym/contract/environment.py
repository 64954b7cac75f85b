"""An opened environment folder: server class and settings, example rows and oracle."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from nemo_gym.config.checks import called_by, check_variables
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.overrides import Override, parsed
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.reading import read_yaml, shown
from nemo_gym.config.settings import LEAST_GROUP, MODEL_TIER, POLICY_MODEL, SERVER_TYPES, USED_IN_CHECKS
from nemo_gym.config.sources import CONFIG_PATHS, gather
from nemo_gym.contract.manifest import DeclaredReward, declared_reward
from nemo_gym.data.media import with_media, with_media_dir
from nemo_gym.data.obtain import Obtainer
from nemo_gym.data.prompts import load_prompt_config, with_prompt
from nemo_gym.errors import DataError, LaunchError, ServerRefNotFoundError, UserError, fault_in
from nemo_gym.jsonl import JsonObject, read_lines
from nemo_gym.launcher.requirements import Requirements, how_to_meet
from nemo_gym.paths import find
from nemo_gym.process.serve import complete_server_class, load_module, typed_config
from nemo_gym.schemas.items import EasyInputMessage, FunctionToolCall
from nemo_gym.schemas.responses import Response
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.tools.handlers import is_class_of
from nemo_gym.testing import FakeModel, connected_server, reply

logger = logging.getLogger(__name__)

Solution = list["str | FunctionToolCall | EasyInputMessage"]
"""A perfect attempt: texts, tool calls and user messages, in order."""

SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
ORACLE_FILE = "oracle.py"
ATTACK_MARGIN = 0.5
COMPOSED_CONFIG = "config.yaml"
"""The file name of a config that uses the server of another folder, as in `environments/` and `benchmarks/`."""


@dataclass(frozen=True)
class Oracle:
    """The functions that a folder's `oracle.py` defines."""

    solve: Callable[[JsonObject], Solution]
    full_reward: Callable[[JsonObject], float]
    """A function that returns the reward of a perfect attempt at a row. Default: always 1."""
    asks_for_something: Callable[[JsonObject], bool]
    """A function that returns whether doing nothing must earn less than the full reward of a row. Default: always."""
    right_by_chance: Mapping[str, str]
    """The attacks that a task may accept, each with the reason. They count only if they earn on almost all tasks."""
    attack_margin: float
    """The share of the way from the reward for doing nothing to the full reward that an attack may earn."""


@dataclass(frozen=True)
class Environment:
    """A resources server as the config of an environment's folder describes it, with its example rows and oracle."""

    folder: Path
    name: str
    """The server's name in the config."""
    server_class: type[SimpleServer]
    settings: Mapping[str, object]
    rows: tuple[JsonObject, ...]
    """The example rows as they are sent to the server: with prompts applied and media loaded."""
    oracle: Oracle | None
    declared_reward: DeclaredReward
    models: tuple[Callable[[], SimpleServer], ...]
    """Functions that create the model servers with `used_in_checks: true` in their config."""
    run: RunConfig
    overrides: tuple[Override, ...] = ()
    """The command-line overrides with which the environment was opened."""

    @property
    def group_size(self) -> int | None:
        """The number of attempts that are verified together; None if each is verified alone."""
        return None if self.settings.get("group_verification") is None else LEAST_GROUP

    @property
    def empty_rivals(self) -> list[Response]:
        """Empty answers that fill up the group of a single attempt. An environment without groups needs none."""
        return [reply("")] * ((self.group_size or 1) - 1)

    def load(self, config: Path) -> RunConfig:
        """Load one config of the folder, with the overrides and the config files of the command line.

        Config files of the command line that are in this folder are left out.
        """
        files: list[str | Path] = [
            config,
            *(path for path in _given_files(self.overrides) if not self._contains(path)),
        ]
        defined = gather(files, (), None, None, skip_dotenv=False).defined
        # Skip overrides of servers that this config lacks, because they may be meant for another config of the folder.
        fitting = [
            given
            for given in self.overrides
            if given.path[0] != CONFIG_PATHS
            and (
                given.path[0] in defined
                or (given.action == "set" and not any(part in SERVER_TYPES for part in given.path))
            )
        ]
        return load([*files, *_model_for(files)], fitting, require_servers=True, needs_variables=False)

    def _contains(self, path: str) -> bool:
        found = find(path, Path.is_file)
        return found is not None and self.folder.resolve() in found.resolve().parents

    @property
    def labels(self) -> list[str] | None:
        """The labels of the judge; the first one means that it agrees. None if the settings have none."""
        kind = self.server_class.model_fields["config"].annotation
        fields = kind.model_fields if is_class_of(kind, BaseModel) else {}
        return labels_in({**{name: field.default for name, field in fields.items()}, **self.settings})

    def server(self, *, judge_agrees: bool = True, judge: FakeModel | None = None) -> SimpleServer:
        """Create the server. Unless a fake judge is given, the judge always agrees, or never if not `judge_agrees`."""
        model = judge or FakeModel([(self.labels or ["yes", "no"])[0 if judge_agrees else -1]])
        settings = {"name": self.name, **self.settings}
        return connected_server(self.server_class, settings, model=model, servers=[each() for each in self.models])


@contextmanager
def open_environment(folder: Path, overrides: Sequence[Override | str] = ()) -> Iterator[Environment]:
    """Open the environment of a folder. Its modules can be imported until the `with` block ends.

    `overrides` change the config, or select another one with the key `config_paths`. Raise `ConfigError`,
    `LaunchError` or `DataError` if the environment cannot be opened.
    """
    run = _load(folder, overrides)
    with open_server(run, own_servers(run, folder)[0], folder, overrides) as environment:
        yield environment


@contextmanager
def open_configs(files: Sequence[str], overrides: Sequence[Override | str] = ()) -> Iterator[Environment]:
    """Open the environment that these config files define together, until the `with` block ends.

    Raise `DataError` if they do not define exactly one resources server.
    """
    given = [*files, *_given_files(overrides)]
    run = load([*files, *_model_for(given)], overrides, require_servers=True, needs_variables=False)
    servers = run.servers_of("resources_servers")
    named = ", ".join(given)
    if len(servers) != 1:
        found = ", ".join(server.name for server in servers) or "none"
        raise DataError(f"{named}: expected one environment, found {found}. Name the config of one of them.")
    folders = [path.parent for file in given if (path := find(file, Path.is_file))]
    folder = next(filter(is_composed, folders), servers[0].folder)
    with open_server(run, servers[0], folder, overrides) as environment:
        yield environment


@contextmanager
def importing(folder: Path, done: str = "imported") -> Iterator[None]:
    """Raise `LaunchError`, with the line in `folder`, for an error of imported code that is not a `UserError`.

    `done` is the purpose of the block, for the message. A call of `sys.exit` also counts as an error, because it
    would end the command as if nothing were wrong.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise LaunchError(f"{folder}: cannot be {done}. {fault_in(folder, error)}") from error


@contextmanager
def open_server(
    run: RunConfig, server: ServerConfig, folder: Path, overrides: Sequence[Override | str] = ()
) -> Iterator[Environment]:
    """Open the environment of one resources server of a run, until the `with` block ends.

    `folder` is the environment's folder. If it has no `oracle.py`, the one in the server's folder is used.
    """
    check_variables([server])
    search_path = list(sys.path)
    try:
        settings = ProcessSettings.of(run, server, cookie_secret="unused: nothing is served")
        with importing(folder):
            server_class = _server_class(settings)
            oracle = _oracle_of(folder) or _oracle_of(server.folder)
        typed_config(server_class, settings)
        rows = tuple(example_rows(run, server.name))
        declared, words = declared_reward(folder), tuple(parsed(overrides))
        models = tuple(_models_in_checks(run, server))
        yield Environment(
            folder, server.name, server_class, server.settings, rows, oracle, declared, models, run, words
        )
    finally:
        # Restore the import path. Loading a server puts its folder first, and this process may open many folders.
        sys.path[:] = search_path


def _server_class(settings: ProcessSettings) -> type[SimpleServer]:
    """Import a server's class. If a package is missing that the folder requires, the error says how to install it."""
    try:
        return complete_server_class(load_module(settings), settings)
    except LaunchError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and (
            unmet := Requirements.of_folder(settings.folder).unmet()
        ):
            raise LaunchError(f"{settings.name}: {how_to_meet(unmet)}") from error
        raise


def _models_in_checks(run: RunConfig, server: ServerConfig) -> Iterator[Callable[[], SimpleServer]]:
    """Yield functions that create the model servers with `used_in_checks` to which this server refers."""
    for referred in called_by(server, run):
        if referred.type == MODEL_TIER and referred.settings.get(USED_IN_CHECKS) is True:
            check_variables([referred])
            settings = ProcessSettings.of(run, referred, cookie_secret="unused: nothing is served")
            with importing(referred.folder):
                server_class = _server_class(settings)
            yield partial(connected_server, server_class, {"name": referred.name, **referred.settings})


def _load(folder: Path, overrides: Sequence[Override | str]) -> RunConfig:
    if given := _given_files(overrides):
        return load(_model_for(given), overrides, require_servers=True, needs_variables=False)
    config = own_config(folder)
    try:
        return load([config, *_model_for([config])], overrides, require_servers=True, needs_variables=False)
    except ServerRefNotFoundError as error:
        raise ServerRefNotFoundError(
            f"{error} If another file defines it, pass --config {shown(config)} --config FILE."
        ) from error


def _given_files(overrides: Sequence[Override | str]) -> list[str]:
    """Return the paths that the command line lists in `config_paths`."""
    values = [given.value for given in parsed(overrides) if given.path[0] == CONFIG_PATHS]
    # Ignore a value that is not a list of paths, because loading the config reports it.
    return [str(item.value) for value in values if value and isinstance(value.value, list) for item in value.value]


def _model_for(files: Sequence[str | Path]) -> list[str]:
    """Return the file of a sample model, unless one of the files itself defines the policy model."""
    found = [path for file in files if (path := find(file, Path.is_file))]
    # Replace a model that is defined only in an included file, because the check does not need its settings.
    return [] if any(POLICY_MODEL in read_yaml(path).mapping for path in found) else [SAMPLE_MODEL]


def is_composed(folder: Path) -> bool:
    """Return whether a folder's config uses the server of another folder, as the configs in `environments/` do."""
    return (folder / COMPOSED_CONFIG).is_file()


def own_configs(folder: Path) -> list[Path]:
    return [folder / COMPOSED_CONFIG] if is_composed(folder) else sorted((folder / "configs").glob("*.yaml"))


def own_config(folder: Path) -> Path:
    """Return the config named after the folder, or its only config. Raise `DataError` if there is neither."""
    configs = own_configs(folder)
    named = [path for path in configs if path.stem == folder.name]
    if not named and len(configs) != 1:
        raise DataError(f"{folder / 'configs'}: expected {folder.name}.yaml, found {[path.name for path in configs]}.")
    return (named or configs)[0]


def own_servers(run: RunConfig, folder: Path) -> list[ServerConfig]:
    """Return the resources servers that a run starts from this folder.

    If the folder's config uses another folder's server, return all resources servers of the run.
    """
    servers = run.servers_of("resources_servers")
    found = [each for each in servers if is_composed(folder) or each.folder.resolve() == folder.resolve()]
    if not found:
        files = ", ".join(map(str, run.config_paths))
        raise DataError(f"{files}: the config does not use the environment in {folder}. Name a config that does.")
    return found


def example_rows(run: RunConfig, server_name: str) -> Iterator[JsonObject]:
    """Yield the example rows of all agents that use this server, with prompts applied and media loaded."""
    for agent in agents_of(run, server_name):
        for dataset in [each for each in agent.datasets if each.type == "example"]:
            prompt = load_prompt_config(dataset.prompt_config) if dataset.prompt_config else None
            path = Obtainer(run, logger.info, may_download=False).path_of(agent, dataset)
            for number, _, row in read_lines(path):
                yield with_media(with_media_dir(with_prompt(row, prompt, f"{path}:{number}"), path.parent))


def agents_of(run: RunConfig, server_name: str) -> list[ServerConfig]:
    """Return the agents that use this resources server."""
    agents = run.servers_of("responses_api_agents")
    return [agent for agent in agents if agent.referred("resources_server") == server_name]


def labels_in(settings: Mapping[str, object]) -> list[str] | None:
    """Return the labels in a judge's settings, at any depth; the first one means that the judge agrees."""
    equal = {key: value for key, value in settings.items() if key.endswith("equal_label") and isinstance(value, str)}
    if equal:
        return [equal[key] for key in sorted(equal, key=lambda key: "not" in key)]
    if isinstance(labels := settings.get("labels"), list):
        return [str(label) for label in labels]
    inner = (labels_in(value) for value in settings.values() if isinstance(value, Mapping))
    return next((labels for labels in inner if labels), None)


def _oracle_of(folder: Path) -> Oracle | None:
    path = folder / ORACLE_FILE
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"{folder.parent.name}.{folder.name}.oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "solve", None)):
        raise DataError(f"{path}: define solve(row), which returns the texts and calls of a perfect attempt.")
    return Oracle(
        solve=module.solve,
        full_reward=getattr(module, "full_reward", lambda row: 1.0),
        asks_for_something=getattr(module, "asks_for_something", lambda row: True),
        right_by_chance=getattr(module, "RIGHT_BY_CHANCE", {}),
        attack_margin=getattr(module, "ATTACK_MARGIN", ATTACK_MARGIN),
    )
