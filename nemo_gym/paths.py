"""Search paths for built-in and user folders."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import get_args

from nemo_gym.plugins import environment_roots

PACKAGE_DIR = Path(__file__).resolve().parent
INSTALL_ROOT = PACKAGE_DIR.parent
"""The folder with `nemo_gym/` and the built-in servers: the repository, or site-packages."""

EXTRA_ROOTS_ENV_VAR = "NEMO_GYM_EXTRA_ROOTS"
PROJECT_ROOTS_ENV_VAR = "NEMO_GYM_PROJECT_ROOTS"
"""The environment variable with a server process's project folders.

They are the folder where the run was started, and the parent of the server's folder.
"""


def search_roots() -> list[Path]:
    """Return the roots for relative paths: extra roots, working folder, project, installation, packed environments.

    The project is the working folder, except in a server's process.
    """
    roots: list[Path] = []
    ours = [*_listed(EXTRA_ROOTS_ENV_VAR), Path.cwd(), *_listed(PROJECT_ROOTS_ENV_VAR), INSTALL_ROOT]
    for root in [*ours, *environment_roots()]:
        if (folder := resolved(root)) not in roots:
            roots.append(folder)
    return roots


def resolved(path: Path) -> Path:
    """Follow links, as `Path.resolve` does. Before Python 3.13, that raises `RuntimeError` for links in a loop."""
    return Path(os.path.realpath(path))


def _listed(variable: str) -> list[Path]:
    return [Path(entry).expanduser() for entry in os.environ.get(variable, "").split(os.pathsep) if entry]


def missing_extra_roots() -> list[Path]:
    """Return the extra roots that are not folders."""
    return [root for root in _listed(EXTRA_ROOTS_ENV_VAR) if not root.is_dir()]


def roots_from_here(*project: Path) -> dict[str, str]:
    """Return environment variables that pass the extra roots, the working folder and `project` to another process."""
    # Make the roots absolute, because relative ones refer to the current folder.
    extra = [str(root.absolute()) for root in _listed(EXTRA_ROOTS_ENV_VAR)]
    roots = dict.fromkeys(map(str, [Path.cwd(), *project]))
    return {EXTRA_ROOTS_ENV_VAR: os.pathsep.join(extra), PROJECT_ROOTS_ENV_VAR: os.pathsep.join(roots)}


def find(relative: str | Path, accepts: Callable[[Path], bool] = Path.exists) -> Path | None:
    """Return the first match for a path in the search roots; an absolute path is used as is."""
    return next(iter(find_all(relative, accepts)), None)


def find_all(relative: str | Path, accepts: Callable[[Path], bool] = Path.exists) -> list[Path]:
    """Return all matches for a path in the search roots; an absolute path is used as is."""
    path = Path(relative).expanduser()
    places = [path] if path.is_absolute() else [root / path for root in search_roots()]
    return [place for place in places if accepts(place)]


def expand_home(value: object, annotation: object) -> object:
    """Replace `~` at the start of each text in a setting's value, if the setting's type has paths."""
    return _with_home(value) if _has_paths(annotation) else value


def _has_paths(annotation: object) -> bool:
    return annotation is Path or any(map(_has_paths, get_args(annotation)))


def _with_home(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_home(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_home(each) for each in value]
    return os.path.expanduser(value) if isinstance(value, str) else value


def starting_dir() -> Path:
    """Return the folder in which the run was started. A server's process has a different working folder."""
    return next(iter(_listed(PROJECT_ROOTS_ENV_VAR)), Path.cwd())


def working_dir() -> Path:
    """Return the folder for results and caches: the repository of an editable install, else the working folder."""
    return INSTALL_ROOT if (INSTALL_ROOT / "pyproject.toml").exists() else Path.cwd()


def module_at(path: Path, name: str) -> ModuleType:
    """Import a file as the module `name`. Register it first, because pydantic and pickle look it up by its name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def augment_sys_path() -> None:
    """Append the search roots to `sys.path`, after all existing entries."""
    sys.path.extend(str(root) for root in search_roots() if str(root) not in sys.path)
