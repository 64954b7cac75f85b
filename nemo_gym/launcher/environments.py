"""A folder's own environment, where it asks for one: built once for each set of packages, then found by its hash."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, Protocol

from packaging.requirements import Requirement

from nemo_gym.config import RunConfig
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.requirements import Requirements
from nemo_gym.paths import INSTALL_ROOT, working_dir

BUILD_TIMEOUT_S = 1800.0
TOLD_LINES = 15
DISTRIBUTION = "nemo-gym"
FULL_EXTRA = "full"
"""What folders written for the published package import without listing it, because its `dev` extra brings it."""

Notice = Callable[[str], None]


class Installer(Protocol):
    """A program that resolves and installs packages."""

    name: str

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        """The exact set of packages that these lines come to, as lines for `install`."""

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        """Make an environment that holds this set."""


class Uv:
    """uv: an environment takes a second where its packages have been fetched before."""

    name = "uv"

    def __init__(self, program: str, cache: str | Path | None) -> None:
        self._program = program
        self._env = {"UV_CACHE_DIR": str(cache)} if cache else {}

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        """See `Installer.resolve`."""
        extra = ["--override", str(overrides)] if overrides else []
        words = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", sys.executable, str(listed)]
        return _run([self._program, *words, *extra], folder, self._env)

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        """See `Installer.install`."""
        made = ["venv", "--quiet", "--relocatable", "--python", sys.executable, str(environment)]
        _run([self._program, *made], folder, self._env)
        words = ["pip", "install", "--quiet", "--no-deps", "--python", str(python_of(environment)), "-r", str(listed)]
        _run([self._program, *words], folder, self._env)


class Pip:
    """pip, where there is no uv."""

    name = "pip"

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        """See `Installer.resolve`."""
        if overrides:
            raise LaunchError(f"{overrides}: overrides need uv. Install it: pip install uv")
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", "-r", str(listed)]
        report = json.loads(_run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], folder, {}))
        return "".join(sorted(_pinned(each) for each in report["install"]))

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        """See `Installer.install`."""
        _run([sys.executable, "-m", "venv", str(environment)], folder, {})
        words = ["install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r", str(listed)]
        _run([str(python_of(environment)), "-m", "pip", *words], folder, {})


def _pinned(package: Mapping[str, Mapping[str, str]]) -> str:
    name, url = package["metadata"]["name"], package["download_info"]["url"]
    is_local = url.startswith("file:")
    return f"{name} @ {url}\n" if is_local else f"{name}=={package['metadata']['version']}\n"


def installer(uv_cache_dir: str | Path | None) -> Installer:
    """uv where it is on the PATH or beside the interpreter, else pip."""
    beside = Path(sys.executable).with_name("uv")
    program = shutil.which("uv") or (str(beside) if beside.is_file() else None)
    return Uv(program, uv_cache_dir) if program else Pip()


def python_of(environment: Path) -> Path:
    """The interpreter of an environment."""
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def interpreters(run: RunConfig, *, auto_install: bool, notice: Notice) -> dict[str, Path]:
    """The interpreter of every server that does not run in this process's environment, by the server's name."""
    found: dict[str, Path] = {}
    told: set[Path] = set()
    for server in run.servers.values():
        requirements = Requirements.of_folder(server.folder)
        unmet = requirements.unmet()
        if server.isolated or (auto_install and unmet):
            found[server.name] = environment_for(server.folder, requirements, run.plain, notice=notice)
        elif unmet and server.folder not in told:
            told.add(server.folder)
            missing = " ".join(shlex.quote(str(each.needed.requirement)) for each in unmet)
            notice(
                f"{server.name}: {'; '.join(map(str, unmet))}. To have it here: pip install {missing}. To give the "
                "folder an environment of its own: +auto_install=true."
            )
    return found


def environment_for(folder: Path, requirements: Requirements, plain: Mapping[str, Any], *, notice: Notice) -> Path:
    """The interpreter of the environment that holds what a folder needs, and what the framework needs.

    `uv_venv_dir` of the configuration, else `environments/` in its `cache_dir`, keeps them: `<hash of the packages>/`,
    and under `resolved/` which lines come to which packages, so that a second start asks no network.
    Raises `LaunchError` with the installer's own last words.
    """
    cache = plain.get("cache_dir") or working_dir() / "cache"
    root = Path(plain.get("uv_venv_dir") or Path(cache, "environments")).resolve()
    lines = "\n".join([*_of_framework(requirements.extras), *requirements.lines]) + "\n"
    overrides = folder / "overrides.txt"
    given = [lines, overrides.read_text("utf-8") if overrides.is_file() else "", _interpreter()]
    remembered = root / "resolved" / f"{_hash(given)}.txt"
    program = installer(plain.get("uv_cache_dir"))
    with tempfile.TemporaryDirectory(prefix="nemo_gym_environment_") as work:
        listed = Path(work, "requirements.in")
        if not remembered.is_file():
            listed.write_text(lines, "utf-8")
            notice(f"resolving what {folder} needs with {program.name} …")
            resolved = program.resolve(listed, overrides if overrides.is_file() else None, folder)
            _write_whole(remembered, resolved)
        resolved = remembered.read_text("utf-8")
        environment = root / _hash([resolved, _interpreter()])
        if not python_of(environment).exists():
            listed.write_text(resolved, "utf-8")
            notice(f"building an environment for {folder} with {program.name} …")
            _build(program, listed, environment, folder)
    return python_of(environment)


def _build(program: Installer, listed: Path, environment: Path, folder: Path) -> None:
    # Another run may build the same one at this moment: whoever is done first has built it for both.
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
    """What the framework itself needs in an environment, with the extras that a folder asks for."""
    wanted = {FULL_EXTRA if extra == "dev" else extra for extra in extras}
    try:
        listed = requires(DISTRIBUTION) or []
    except PackageNotFoundError as error:
        raise LaunchError(
            f"an environment of its own for a folder needs {DISTRIBUTION} to be installed, not only to be on the "
            "path: pip install -e ."
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


def _run(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    try:
        finished = subprocess.run(
            command, cwd=folder, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{folder}: {' '.join(command[:3])} was not done after {BUILD_TIMEOUT_S:g} s.") from error
    if finished.returncode:
        said = "\n".join(f"    {line}" for line in finished.stderr.strip().splitlines()[-TOLD_LINES:])
        raise LaunchError(f"{folder}: its environment could not be made. {' '.join(command[:3])} says:\n{said}")
    return finished.stdout
