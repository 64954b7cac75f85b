"""Run the tests of server folders, each in a process of its own, and count what came of them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from nemo_gym import paths
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.errors import LaunchError
from nemo_gym.paths import roots_from_here

# As in our own repository: a folder's tests pass or fail alike wherever it lies.
PYTEST = ("-m", "pytest", "--import-mode=importlib", "-o", "asyncio_mode=auto",
          "-o", "asyncio_default_fixture_loop_scope=function")  # fmt: skip
NEEDED = {"pytest": "pytest", "pytest_asyncio": "pytest-asyncio"}
"""What tests are run with: modules, and the packages that they come with."""
NONE_COLLECTED = 5
"""pytest's exit code where there was nothing to run."""
JUNIT_DIR = "GYM_CI_JUNIT_DIR"
"""Where this environment variable names a folder, a report of every folder's tests is left there."""
MARKS = ("app.py", "requirements.txt", "pyproject.toml")
"""What makes a folder a server's; the file that is served may have any name."""


def is_server_folder(path: Path) -> bool:
    """Whether a server's code lies here."""
    return any((path / each).is_file() for each in MARKS)


class Tested(NamedTuple):
    """What came of one folder's tests."""

    folder: Path
    code: int
    """pytest's exit code; 5 also where the folder has no tests at all."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    took_s: float = 0.0

    @property
    def name(self) -> str:
        """`resources_servers/mcqa`."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def has_tests(self) -> bool:
        """Whether any were found."""
        return self.code != NONE_COLLECTED

    @property
    def is_good(self) -> bool:
        """Whether nothing failed."""
        return self.code in (0, NONE_COLLECTED)


def server_folders() -> list[Path]:
    """Every server's folder in the search roots; the shipped ones only where the other roots have none.

    Of one name the first root's counts. In the order of tiers and names.
    """
    roots = paths.search_roots()
    own = _folders_in([root for root in roots if root != paths.INSTALL_ROOT])
    return own or _folders_in(roots)


def _folders_in(roots: Sequence[Path]) -> list[Path]:
    found: dict[str, Path] = {}
    for tier in SERVER_TYPES:
        folders = [path for root in roots for path in (root / tier).glob("*/") if is_server_folder(path)]
        for name in sorted({path.name for path in folders}):
            found[f"{tier}/{name}"] = next(path for path in folders if path.name == name)
    return list(found.values())


def check_pytest() -> None:
    """`LaunchError` where pytest is not there to run tests with, as after `make demo`."""
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise LaunchError(
            f"tests are run with {' and '.join(NEEDED.values())}, and {sys.executable} lacks {' and '.join(missing)}. "
            f"Install what is missing: make dev in a clone of nemo_gym, else pip install {' '.join(missing)}."
        )


def run_tests(folder: Path) -> Tested:
    """Run a folder's tests with pytest, whose output goes where ours goes."""
    if not (folder / "tests").is_dir():
        return Tested(folder, NONE_COLLECTED)
    check_pytest()
    # Its tests import it by name, `resources_servers.<name>.app`, from whichever root it was found in.
    # Published ones import its modules by their bare names: `from app import …`.
    root = folder.parent.parent
    given = [str(Path(place).absolute()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    # And what lies beside its tests as `from helpers import …`, which pytest's own way of importing would find.
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(root), *given, str(folder / "tests")]),
        **roots_from_here(root),
    }
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nemo_gym_tests_") as work:
        report = Path(os.environ.get(JUNIT_DIR) or work).resolve() / f"{folder.parent.name}_{folder.name}.xml"
        command = [sys.executable, *PYTEST, f"--junitxml={report}", str(folder / "tests")]
        # In the folder, as its server works: paths such as data/words.txt lead from there.
        code = subprocess.run(command, cwd=folder, env=env, check=False).returncode
        counts = _counted(report)
    return Tested(folder, code, **counts, took_s=time.monotonic() - started_at)


def _counted(report: Path) -> dict[str, int]:
    if not report.is_file():
        return {}
    total = {name: 0 for name in ("tests", "failures", "errors", "skipped")}
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for name in total:
            total[name] += int(suite.get(name, "0"))
    failed = total["failures"] + total["errors"]
    return {"passed": total["tests"] - failed - total["skipped"], "failed": failed, "skipped": total["skipped"]}
