"""Where built-in and user folders are looked for, in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
INSTALL_ROOT = PACKAGE_DIR.parent
"""The folder that holds `nemo_gym/` and the shipped servers: the repository, or site-packages."""

EXTRA_ROOTS_ENV_VAR = "NEMO_GYM_EXTRA_ROOTS"
PROJECT_ROOTS_ENV_VAR = "NEMO_GYM_PROJECT_ROOTS"
"""Set in a server's process, which works in its own folder: where the run was started, and where the folder lies."""


def search_roots() -> list[Path]:
    """The folders in which relative paths are tried: extra roots, the working folder, the project, the installation.

    The project is the working folder, except in a server's process.
    """
    roots: list[Path] = []
    for root in [*_listed(EXTRA_ROOTS_ENV_VAR), Path.cwd(), *_listed(PROJECT_ROOTS_ENV_VAR), INSTALL_ROOT]:
        resolved = root.resolve()
        if resolved not in roots:
            roots.append(resolved)
    return roots


def _listed(variable: str) -> list[Path]:
    return [Path(entry).expanduser() for entry in os.environ.get(variable, "").split(os.pathsep) if entry]


def roots_from_here(*project: Path) -> dict[str, str]:
    """The variables by which a process searches the same roots when it works in another folder; `project` come too."""
    # Relative ones are meant from where they were named.
    extra = [str(root.absolute()) for root in _listed(EXTRA_ROOTS_ENV_VAR)]
    roots = dict.fromkeys(map(str, [Path.cwd(), *project]))
    return {EXTRA_ROOTS_ENV_VAR: os.pathsep.join(extra), PROJECT_ROOTS_ENV_VAR: os.pathsep.join(roots)}


def find(relative: str | Path, accepts: Callable[[Path], bool] = Path.exists) -> Path | None:
    """The first existing place of a path among the roots; an absolute path is taken as it is."""
    path = Path(relative).expanduser()
    if path.is_absolute():
        return path if accepts(path) else None
    for root in search_roots():
        if accepts(root / path):
            return root / path
    return None


def working_dir() -> Path:
    """Where results and caches go: the repository when we run from an editable checkout, else the working folder."""
    return INSTALL_ROOT if (INSTALL_ROOT / "pyproject.toml").exists() else Path.cwd()


def component_search_roots(*, sys_path: Iterable[str] | None = None) -> list[Path]:
    """Published name of `search_roots`; of a module path, the folders that it adds come last."""
    roots = search_roots()
    return [*roots, *(folder for folder in map(Path, sys_path or ()) if folder.resolve() not in roots)]


def resolve_under_cwd_or_install(
    rel_path: str | Path, *, validator: Callable[[Path], bool] | None = None
) -> Path | None:
    """Published name of `find`."""
    return find(rel_path, validator or Path.exists)


def augment_sys_path() -> None:
    """Let modules be imported from the search roots, too: after everything that can be imported already."""
    sys.path.extend(str(root) for root in search_roots() if str(root) not in sys.path)
