"""Find out what a published folder needs that does not exist here, without running the folder's code."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.config.process import ProcessSettings
from nemo_gym.errors import (
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    InheritPathNotFoundError,
    NoServerInstancesError,
    ServerRefNotFoundError,
)
from nemo_gym.paths import INSTALL_ROOT, resolved
from nemo_gym.process.serve import load_module, server_class, typed_config

GUARDS = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
"""The errors whose handlers make an import optional."""
OF_OTHER_FILES = (
    ConfigInterpolationError,
    ConfigMissingValuesError,
    InheritPathNotFoundError,
    NoServerInstancesError,
    ServerRefNotFoundError,
)
"""Errors about values that another file of a run may provide."""
POLICY = {"policy_model": {"responses_api_models": {"sample_model": {"entrypoint": "app.py"}}}}
NOT_ITS_OWN = {"__pycache__", "node_modules", "site-packages"}
"""Folders that contain other people's code."""


class Missing(NamedTuple):
    """The findings about a folder, each with its file and line, and the number of files that were read."""

    findings: list[str]
    modules: int
    configs: int


def missing_in(folder: Path) -> Missing:
    """Return everything that a folder needs and that does not exist here."""
    modules, configs = list(_files(folder, "*.py")), list(filter(_is_config, _files(folder, "*.yaml")))
    findings = [each for path in modules for each in _missing_names(path)]
    findings += [each for path in configs for each in _refused_keys(path, folder)]
    return Missing(list(dict.fromkeys(findings)), len(modules), len(configs))


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.rglob(pattern)):
        inner = path.relative_to(folder).parts[:-1]
        if path.is_file() and not any(part.startswith(".") or part in NOT_ITS_OWN for part in inner):
            yield path


def _is_config(path: Path) -> bool:
    # Prompts and manifests are YAML files, too.
    return "configs" in path.parts[:-1] or path.name == "config.yaml"


def _missing_names(path: Path) -> Iterator[str]:
    try:
        imports = _Imports(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError) as error:
        yield f"{path}:{getattr(error, 'lineno', None) or 1}: this is not valid Python: {error}"
        return
    for line, module, name in imports.found:
        if problem := _problem(module, name):
            yield f"{path}:{line}: {problem}"


class _Imports(ast.NodeVisitor):
    """The names that a module imports from nemo_gym and cannot do without, each with its line."""

    def __init__(self, tree: ast.AST) -> None:
        self.found: list[tuple[int, str, str | None]] = []
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node.lineno, alias.name, None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names if node.level == 0 else ():
            self._add(alias.lineno, node.module or "", None if alias.name == "*" else alias.name)

    def visit_If(self, node: ast.If) -> None:
        is_for_types = any(
            "TYPE_CHECKING" in (getattr(each, "id", ""), getattr(each, "attr", "")) for each in ast.walk(node.test)
        )
        self._visit_all(node.orelse if is_for_types else [*node.body, *node.orelse])

    def visit_Try(self, node: ast.Try) -> None:
        caught = {getattr(each, "id", "") for handler in node.handlers for each in _caught(handler)}
        body = [] if caught & GUARDS else node.body
        self._visit_all([*body, *node.handlers, *node.orelse, *node.finalbody])

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _add(self, line: int, module: str, name: str | None) -> None:
        if f"{module}.".startswith("nemo_gym."):
            self.found.append((line, module, name))


def _caught(handler: ast.ExceptHandler) -> Iterable[ast.AST]:
    return ast.walk(handler.type) if handler.type else [ast.Name("Exception")]


@cache
def _problem(module: str, name: str | None) -> str | None:
    """Return what is missing for an import, or None if the import works here."""
    if not _exists(module):
        return f"the module {module} does not exist here"
    if name is None or _exists(f"{module}.{name}"):
        return None
    try:
        return None if hasattr(importlib.import_module(module), name) else f"{module} does not have {name} here"
    except ImportError:
        # The name exists, but its module needs a package that is not installed.
        return None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _refused_keys(path: Path, folder: Path) -> Iterator[str]:
    try:
        run = load([path], skip_dotenv=True, stand_in=POLICY, needs_variables=False)
    except OF_OTHER_FILES:
        return
    except ConfigError as error:
        yield from _lines(path, error)
        return
    yield from _refused_settings(run, path, folder)


def _refused_settings(run: RunConfig, path: Path, folder: Path) -> Iterator[str]:
    """Yield the settings that classes of ours refuse. Other classes are not imported, because that runs their code."""
    ours, theirs = resolved(INSTALL_ROOT), resolved(folder)
    for server in run.servers.values():
        place = resolved(server.folder)
        if not place.is_relative_to(ours) or place.is_relative_to(theirs):
            continue
        settings = ProcessSettings.of(run, server, cookie_secret="unused: nothing is served")
        try:
            typed_config(server_class(load_module(settings), settings), settings)
        except ConfigError as error:
            yield from _lines(path, error)


def _lines(path: Path, error: ConfigError) -> Iterator[str]:
    """Yield one line for each problem of a configuration, with its file."""
    for line in filter(None, map(str.strip, str(error).splitlines())):
        yield line if ".yaml:" in line else f"{path}: {line}"
