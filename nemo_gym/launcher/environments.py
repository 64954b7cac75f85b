"""Separate environments for server folders, built once per set of packages and cached by its hash."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from nemo_gym.config import RunConfig
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.installers import Installer, installer, python_of
from nemo_gym.launcher.requirements import Requirements, how_to_meet
from nemo_gym.paths import INSTALL_ROOT, working_dir

DISTRIBUTION = "nemo-gym"
FULL_EXTRA = "full"
"""The extra that replaces `dev` if a folder requests it. It has the packages that older folders may import."""

Notice = Callable[[str], None]


def interpreters(run: RunConfig, *, auto_install: bool, notice: Notice) -> dict[str, Path]:
    """Build the environments of servers that need their own. Return their interpreters by server name."""
    found: dict[str, Path] = {}
    noted: set[Path] = set()
    for server in run.servers_here.values():
        requirements = Requirements.of_folder(server.folder)
        unmet = requirements.unmet()
        if server.isolated or (auto_install and unmet):
            found[server.name] = environment_for(server.folder, requirements, run.plain, notice=notice)
        elif unmet and server.folder not in noted:
            noted.add(server.folder)
            own = "To give the folder its own environment: --auto-install."
            notice(f"{server.name}: {how_to_meet(unmet)} {own}")
    return found


def environment_for(folder: Path, requirements: Requirements, plain: Mapping[str, object], *, notice: Notice) -> Path:
    """Return the interpreter of an environment with the packages of the folder and of the framework.

    Environments are cached as `<hash of the packages>/` in the configured `uv_venv_dir`, by default `environments/` in
    `cache_dir`. The subfolder `resolved/` caches the resolved packages, so that the next start needs no network.
    If the installer fails, raise `LaunchError` with the last lines of its output.
    """
    lines, overrides = _lines_for(requirements), folder / "overrides.txt"
    remembered = _remembered(folder, requirements, plain)
    program = installer(_path(plain, "uv_cache_dir"))
    with tempfile.TemporaryDirectory(prefix="nemo_gym_environment_") as work:
        listed = Path(work, "requirements.in")
        if not remembered.is_file():
            listed.write_text(lines, "utf-8")
            notice(f"resolving the requirements of {folder} with {program.name} …")
            resolved = program.resolve(listed, overrides if overrides.is_file() else None, folder)
            _write_whole(remembered, resolved)
        environment = _environment(remembered, plain)
        if not python_of(environment).exists():
            # Repeat the options with the packages' sources, because the resolved packages do not name them.
            listed.write_text("\n".join([*requirements.sources, remembered.read_text("utf-8")]), "utf-8")
            notice(f"building an environment for {folder} with {program.name} …")
            _build(program, listed, environment, folder)
    return python_of(environment)


class Listing(NamedTuple):
    """The command that lists the packages of an environment."""

    python: Path
    command: list[str]
    """The arguments of the command, which also accepts pip's `--format` and `--outdated`."""


def package_listing(folder: Path, plain: Mapping[str, object]) -> Listing:
    """Return the command that lists a folder's packages.

    It lists the folder's own environment if that is built, otherwise the environment of this process.
    """
    python = Path(sys.executable)
    remembered = _remembered(folder, Requirements.of_folder(folder), plain)
    if remembered.is_file():
        built = python_of(_environment(remembered, plain))
        python = built if built.exists() else python
    program = installer(_path(plain, "uv_cache_dir"))
    return Listing(python, program.listing(python))


def _root(plain: Mapping[str, object]) -> Path:
    cache = _path(plain, "cache_dir") or working_dir() / "cache"
    return (_path(plain, "uv_venv_dir") or cache / "environments").resolve()


def _path(plain: Mapping[str, object], key: str) -> Path | None:
    return Path(str(plain[key])) if plain.get(key) else None


def _lines_for(requirements: Requirements) -> str:
    return "\n".join([*_of_framework(requirements.extras), *requirements.lines]) + "\n"


def _remembered(folder: Path, requirements: Requirements, plain: Mapping[str, object]) -> Path:
    """Return the path of the cached resolution of these requirements."""
    overrides = folder / "overrides.txt"
    extra = overrides.read_text("utf-8") if overrides.is_file() else ""
    limits = (path.read_text("utf-8") for path in requirements.constraints)
    return _root(plain) / "resolved" / f"{_hash([_lines_for(requirements), extra, _interpreter(), *limits])}.txt"


def _environment(remembered: Path, plain: Mapping[str, object]) -> Path:
    return _root(plain) / _hash([remembered.read_text("utf-8"), _interpreter()])


def _build(program: Installer, listed: Path, environment: Path, folder: Path) -> None:
    # Build in a staging folder, because another run may be building the same environment. The first to finish wins.
    staged = environment.with_name(f".{environment.name}.{os.getpid()}")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.parent.mkdir(parents=True, exist_ok=True)
        program.install(listed, staged, folder)
        place = "Lib/site-packages" if sys.platform == "win32" else "lib/python*/site-packages"
        (site_packages,) = staged.glob(place)
        (site_packages / "nemo_gym_install_root.pth").write_text(f"{INSTALL_ROOT}\n", "utf-8")
        try:
            staged.rename(environment)
        except OSError:
            if not python_of(environment).exists():
                raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _of_framework(extras: frozenset[str]) -> list[str]:
    """Return the framework's requirements, including those of the extras that a folder requests."""
    wanted = {FULL_EXTRA if extra == "dev" else extra for extra in extras}
    try:
        listed = requires(DISTRIBUTION) or []
    except PackageNotFoundError as error:
        raise LaunchError(
            f"a folder can have its own environment only if {DISTRIBUTION} is installed, not just on sys.path. "
            "Install it: pip install -e ."
        ) from error
    needed = [Requirement(line) for line in listed]
    environments = [{"extra": extra} for extra in ("", *sorted(wanted))]
    kept = [each for each in needed if each.marker is None or any(map(each.marker.evaluate, environments))]
    for each in kept:
        each.marker = None
    return sorted({str(each) for each in kept if each.name.lower().replace("_", "-") != DISTRIBUTION})


def _interpreter() -> str:
    return f"{platform.python_implementation()} {platform.python_version()} {sys.platform} {platform.machine()}"


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_text(text, "utf-8")
    staged.replace(path)
