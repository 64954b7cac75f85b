"""The programs that resolve and install packages: uv, or pip if uv is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nemo_gym.errors import LaunchError

BUILD_TIMEOUT_S = 1800.0
SHOWN_LINES = 15


class Installer(Protocol):
    name: str

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        """Resolve the requirements in the file `listed`. Return the text of a file that pins each package."""

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        """Create an environment with exactly the packages in the file `listed`."""

    def listing(self, python: Path) -> list[str]:
        """Return the command that lists an environment's packages. It accepts `--format` and `--outdated`."""

    def installing(self) -> list[str]:
        """Return the command that installs packages into the environment of this process."""


class Uv:
    """The installer uv, which creates an environment within a second if its packages are cached."""

    name = "uv"

    def __init__(self, program: str, cache: str | Path | None) -> None:
        self._program = program
        self._env = {"UV_CACHE_DIR": str(cache)} if cache else {}

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        extra = ["--override", str(overrides)] if overrides else []
        words = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", sys.executable, str(listed)]
        return _run([self._program, *words, *extra], folder, self._env)

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        made = ["venv", "--quiet", "--relocatable", "--python", sys.executable, str(environment)]
        _run([self._program, *made], folder, self._env)
        words = ["pip", "install", "--quiet", "--no-deps", "--python", str(python_of(environment)), "-r", str(listed)]
        _run([self._program, *words], folder, self._env)

    def listing(self, python: Path) -> list[str]:
        return [self._program, "pip", "list", "--quiet", "--python", str(python)]

    def installing(self) -> list[str]:
        return [self._program, "pip", "install", "--python", sys.executable]


class Pip:
    """The installer pip, for machines without uv."""

    name = "pip"

    def resolve(self, listed: Path, overrides: Path | None, folder: Path) -> str:
        if overrides:
            raise LaunchError(f"{overrides}: overrides need uv. Install it: pip install uv")
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", "-r", str(listed)]
        report = json.loads(_run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], folder, {}))
        return "".join(sorted(_pinned(each) for each in report["install"]))

    def install(self, listed: Path, environment: Path, folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(environment)], folder, {})
        words = ["install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r", str(listed)]
        _run([str(python_of(environment)), "-m", "pip", *words], folder, {})

    def listing(self, python: Path) -> list[str]:
        return [str(python), "-m", "pip", "--disable-pip-version-check", "list"]

    def installing(self) -> list[str]:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]


def _pinned(package: Mapping[str, Any]) -> str:
    """Return the requirement for exactly this package of pip's installation report."""
    name, source = package["metadata"]["name"], package["download_info"]
    # A package from an address or a local file may be missing from the package index.
    if not package["is_direct"] and not source["url"].startswith("file:"):
        return f"{name}=={package['metadata']['version']}\n"
    version = source.get("vcs_info")
    address = f"{version['vcs']}+{source['url']}@{version['commit_id']}" if version else source["url"]
    return f"{name} @ {address}\n"


def installer(uv_cache_dir: str | Path | None) -> Installer:
    """Return uv if it is on the PATH or next to the interpreter, else pip."""
    adjacent = Path(sys.executable).with_name("uv")
    program = shutil.which("uv") or (str(adjacent) if adjacent.is_file() else None)
    return Uv(program, uv_cache_dir) if program else Pip()


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _run(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    try:
        finished = subprocess.run(
            command, cwd=folder, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{folder}: {' '.join(command[:3])} did not finish within {BUILD_TIMEOUT_S:g} s. Check the connection to "
            "the package index, and try again."
        ) from error
    if finished.returncode:
        said = "\n".join(f"    {line}" for line in finished.stderr.strip().splitlines()[-SHOWN_LINES:])
        raise LaunchError(f"{folder}: could not create its environment. {' '.join(command[:3])} reports:\n{said}")
    return finished.stdout
