"""The runner for the tests of server folders. Each folder's tests run in their own process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym import paths
from nemo_gym.config.server_folders import ServerFolder, nested_folders
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.environments import packages_folder
from nemo_gym.launcher.outcome_counts import COUNTS_FILE
from nemo_gym.paths import roots_from_here
from nemo_gym.plugins import environment_roots

# Use the pytest options of nemo_gym's repository, so that a folder's tests behave the same outside of it.
PYTEST = ("-m", "pytest", "--import-mode=importlib", "-o", "asyncio_mode=auto",
          "-o", "asyncio_default_fixture_loop_scope=function", "-p", "nemo_gym.launcher.outcome_counts")  # fmt: skip
NEEDED = {"pytest": "pytest", "pytest_asyncio": "pytest-asyncio"}
"""The modules required to run tests, each with the package that provides it."""
NONE_COLLECTED = 5
"""pytest's exit code if it collected no tests."""
JUNIT_DIR = "GYM_CI_JUNIT_DIR"
"""The environment variable that names a folder for the JUnit reports."""
MARKS = ("app.py", "requirements.txt", "pyproject.toml")
"""File names that identify a server folder. One of them is enough: the server's code can be in any other file."""


def is_server_folder(path: Path) -> bool:
    return any((path / each).is_file() for each in MARKS)


class Tested(NamedTuple):
    """The result of one folder's tests."""

    folder: Path
    code: int
    """pytest's exit code; also 5 if the server folder does not have a `tests` folder."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    took_s: float = 0.0

    @property
    def name(self) -> str:
        """The folder's name with its tier, such as `resources_servers/mcqa`."""
        return ServerFolder.of(self.folder).name

    @property
    def has_tests(self) -> bool:
        return self.code != NONE_COLLECTED

    @property
    def is_good(self) -> bool:
        """Whether pytest succeeded. Also true if there are no tests."""
        return self.code in (0, NONE_COLLECTED)


def server_folders() -> list[Path]:
    """Return the server folders in the search roots, sorted by tier and name.

    If several roots contain a folder of the same name, the first root wins. Folders that are shipped
    with nemo_gym are returned only if there are no others.
    """
    roots = paths.search_roots()
    own = _folders_in([root for root in roots if root not in (paths.INSTALL_ROOT, *environment_roots())])
    return own or _folders_in(roots)


def _folders_in(roots: Sequence[Path]) -> list[Path]:
    found: dict[str, Path] = {}
    for tier in SERVER_TYPES:
        own: dict[str, Path] = {}
        for held in (root / tier for root in roots):
            direct = (path for path in held.glob("*/") if is_server_folder(path))
            for path in (*direct, *nested_folders(held)):
                own.setdefault(ServerFolder.of(path).name, path)
        found |= dict(sorted(own.items()))
    return list(found.values())


def check_pytest() -> None:
    """Raise `LaunchError` if pytest is not installed. `make demo`, for example, does not install it."""
    if missing := _missing():
        raise LaunchError(_remedy(missing))


def _pytest_folder(plain: Mapping[str, object]) -> list[str]:
    """Return the folder of pytest in the cache, or an empty list if it is installed. Install it there if necessary."""
    missing = _missing()
    try:
        return [str(packages_folder(missing, plain))] if missing else []
    except LaunchError as error:
        raise LaunchError(f"{_remedy(missing)} {error}") from error


def _missing() -> list[str]:
    return [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]


def _remedy(missing: Sequence[str]) -> str:
    return (
        f"{sys.executable} lacks {' and '.join(missing)}, which the tests need. Run make dev in a clone of nemo_gym, "
        f"otherwise pip install {' '.join(missing)}."
    )


def run_tests(folder: Path, plain: Mapping[str, object]) -> Tested:
    """Run a folder's tests with pytest, which prints to this process's standard output.

    `plain` is the configuration, of which `cache_dir` is used.
    """
    if not (folder / "tests").is_dir():
        return Tested(folder, NONE_COLLECTED)
    tools = _pytest_folder(plain)
    # Add the root to the path, because tests import the server as `resources_servers.<name>.app`.
    # Also add the folder, because tests of folders import its modules by their bare names: `from app import …`.
    root = ServerFolder.of(folder).root
    given = [str(Path(place).absolute()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    # Also add `tests/`, as pytest's default import mode does, because tests use `from helpers import …`.
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(root), *given, str(folder / "tests"), *tools]),
        **roots_from_here(root),
    }
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nemo_gym_tests_") as work:
        counts = Path(work) / "counts.json"
        # Without the developers' packages, the conftest.py of a checkout above the folder cannot be imported.
        cut = [f"--confcutdir={folder}"] if tools else []
        command = [sys.executable, *PYTEST, *cut, *_report_of(folder), str(folder / "tests")]
        # Run the tests in the server's folder, so that relative paths such as data/words.txt work.
        code = subprocess.run(command, cwd=folder, env=env | {COUNTS_FILE: str(counts)}, check=False).returncode
        # pytest writes no counts if it cannot start, for example because of an invalid option.
        found = orjson.loads(counts.read_bytes()) if counts.is_file() else {}
    return Tested(folder, code, **found, took_s=time.monotonic() - started_at)


def _report_of(folder: Path) -> list[str]:
    """Return the option for a JUnit report, if a folder for reports is configured."""
    reports = os.environ.get(JUNIT_DIR)
    name = ServerFolder.of(folder).name.replace("/", "_")
    return [f"--junitxml={Path(reports).resolve() / f'{name}.xml'}"] if reports else []
