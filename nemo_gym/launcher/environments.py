"""Separate environments for server folders, built once per set of requirements by uv, or by pip without uv."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

from nemo_gym.config.models import RunConfig
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.requirements import Requirements, how_to_meet
from nemo_gym.paths import INSTALL_ROOT, working_dir

DISTRIBUTION = "nemo-gym"
FULL_EXTRA = "full"
"""The extra that replaces `dev` if a folder requests it. It has the packages that older folders may import."""
OVERRIDES = "overrides.txt"
PYTHON = "bin/python"
BUILD_TIMEOUT_S = 1800.0
SHOWN_LINES = 15

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
            own = "To give the folder its own virtual environment: --auto-install."
            notice(f"{server.name}: {how_to_meet(unmet)} {own}")
    return found


def environment_for(folder: Path, requirements: Requirements, plain: Mapping[str, object], *, notice: Notice) -> Path:
    """Return the interpreter of an environment with the packages of the folder and of the framework.

    The environment is `<hash of the requirements>/` in the configured `uv_venv_dir`, by default `environments/` in
    `cache_dir`. If it exists, nothing is installed: the start needs neither a network nor a writable cache.
    If the installer fails, raise `LaunchError` with the last lines of its output.
    """
    python = _python_for(folder, requirements, plain)
    if not python.exists():
        notice(f"building an environment for {folder} with {'uv' if _uv(plain) else 'pip'} …")
        _build(python, folder, requirements, plain)
    return python


def packages_folder(names: Sequence[str], plain: Mapping[str, object]) -> Path:
    """Return a folder with these packages, to be added to the path of a process. Install them if it does not exist.

    If the installer fails, raise `LaunchError` with the last lines of its output.
    """
    digest = hashlib.sha256("\0".join([*names, sys.version]).encode()).hexdigest()[:16]
    folder = _cache(plain) / "packages" / digest
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as work:
            staged = Path(work, "packages")
            run_installer([*pip("install", sys.executable, plain), "--target", str(staged), *names], folder.parent)
            if not folder.exists():
                staged.rename(folder)
    return folder


def interpreter_of(folder: Path, plain: Mapping[str, object]) -> Path:
    """Return the interpreter of a folder's own environment if that is built, otherwise the one of this process."""
    python = _python_for(folder, Requirements.of_folder(folder), plain)
    return python if python.exists() else Path(sys.executable)


def pip(action: str, python: str | Path, plain: Mapping[str, object]) -> list[str]:
    """Return the first words of a `uv pip` command for an environment, or without uv of a `pip` command."""
    if uv := _uv(plain, "pip", action):
        return [*uv, "--python", str(python)]
    # `pip list --quiet` prints nothing.
    quiet = ["--quiet"] if action == "install" else []
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), action, *quiet]


def _uv(plain: Mapping[str, object], *words: str) -> list[str]:
    """Return a command of the uv on the PATH or next to the interpreter, or an empty list if it is not installed."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    cache = _path(plain, "uv_cache_dir")
    return [uv, *words, "--quiet", *(["--cache-dir", str(cache)] if cache else [])] if uv else []


def _path(plain: Mapping[str, object], key: str) -> Path | None:
    return Path(str(plain[key])).resolve() if plain.get(key) else None


def _cache(plain: Mapping[str, object]) -> Path:
    return _path(plain, "cache_dir") or working_dir() / "cache"


def _python_for(folder: Path, requirements: Requirements, plain: Mapping[str, object]) -> Path:
    """Return the path of the interpreter for these requirements, whether or not it exists."""
    files = [folder / OVERRIDES, *(Path(line[3:]) for line in requirements.lines if line.startswith("-c "))]
    limits = [path.read_text("utf-8") if path.is_file() else "" for path in files]
    parts = [*lines_for(requirements), *limits, sys.version, sysconfig.get_platform(), str(INSTALL_ROOT)]
    root = _path(plain, "uv_venv_dir") or _cache(plain) / "environments"
    return root / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16] / PYTHON


def lines_for(requirements: Requirements, *, with_framework: bool = True) -> list[str]:
    """Return the requirements of the folder, of the framework and of those of its extras that the folder requests."""
    extras = [{"extra": FULL_EXTRA if extra == "dev" else extra} for extra in ("", *requirements.extras)]
    try:
        framework = [Requirement(line) for line in requires(DISTRIBUTION) or []]
    except PackageNotFoundError as error:
        raise LaunchError(
            f"a folder can have its own virtual environment only if {DISTRIBUTION} is installed, not just on "
            "sys.path. Install it: pip install -e ."
        ) from error
    kept = [each for each in framework if each.marker is None or any(map(each.marker.evaluate, extras))]
    kept = [each for each in kept if with_framework or "extra" in str(each.marker)]
    return [*sorted({str(each).partition(";")[0].strip() for each in kept}), *requirements.lines]


def _build(python: Path, folder: Path, requirements: Requirements, plain: Mapping[str, object]) -> None:
    overrides = folder / OVERRIDES
    limits = ["--override", str(overrides)] if overrides.is_file() else []
    uv_venv = _uv(plain, "venv", "--relocatable", "--python", sys.executable)
    if limits and not uv_venv:
        raise LaunchError(f"{overrides}: overrides need uv. Install it: pip install uv")
    environment = python.parents[1]
    environment.parent.mkdir(parents=True, exist_ok=True)
    # Build in a staging folder, because another run may be building the same environment. The first to finish wins.
    with tempfile.TemporaryDirectory(prefix=".", dir=environment.parent) as work:
        staged, listed = Path(work, "environment"), Path(work, "requirements.in")
        listed.write_text("\n".join(lines_for(requirements)) + "\n", "utf-8")
        run_installer([*(uv_venv or [sys.executable, "-m", "venv", "--without-pip"]), str(staged)], folder)
        run_installer([*pip("install", staged / PYTHON, plain), "-r", str(listed), *limits], folder)
        packages = sysconfig.get_path("purelib", "venv", {"base": str(staged)})
        Path(packages, "nemo_gym_install_root.pth").write_text(f"{INSTALL_ROOT}\n", "utf-8")
        try:
            staged.rename(environment)
        except OSError:
            if not python.exists():
                raise


def run_installer(command: Sequence[str], folder: Path) -> None:
    """Run an installer in a folder. Raise `LaunchError` with its last lines if it fails or does not finish."""
    try:
        finished = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{folder}: {' '.join(command[:3])} did not finish within {BUILD_TIMEOUT_S:g} s. Check the connection to "
            "the package index, and try again."
        ) from error
    if finished.returncode:
        said = "\n".join(f"    {line}" for line in finished.stderr.strip().splitlines()[-SHOWN_LINES:])
        raise LaunchError(f"{folder}: '{' '.join(command[:3])}' failed with:\n{said}")
