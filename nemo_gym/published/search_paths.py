"""Search roots under the names that tools written for release 0.7 import from `nemo_gym`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from nemo_gym.paths import find, resolved, search_roots


def component_search_roots(*, sys_path: Iterable[str] | None = None) -> list[Path]:
    """Return the search roots, then the folders in `sys_path`."""
    roots = search_roots()
    return [*roots, *(folder for folder in map(Path, sys_path or ()) if resolved(folder) not in roots)]


def resolve_under_cwd_or_install(
    rel_path: str | Path, *, validator: Callable[[Path], bool] | None = None
) -> Path | None:
    """Return the first file or folder at this path in the search roots for which `validator` is true."""
    return find(rel_path, validator or Path.exists)
