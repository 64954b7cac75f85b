"""Commands of NeMo Gym 0.7 that run the tests of this repository and reinstall it, for its developers."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

from nemo_gym import paths
from nemo_gym.cli import printing
from nemo_gym.cli.main import HELP_WORDS
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import ReinstallSettings
from nemo_gym.config.loading import load
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.environments import pip
from nemo_gym.launcher.folder_tests import check_pytest

LOCKS = ("requirements.lock", "requirements-dev.lock")


def test(words: list[str]) -> int:
    """Run the repository's tests with pytest and return its exit code; measure coverage if pytest-cov is installed.

    All arguments are passed on to pytest.
    """
    if HELP_WORDS & {*words}:
        printing.say(
            "usage: ng dev test [PYTEST ARGUMENTS …]\n\n"
            "Run the tests of this repository with pytest, with coverage if pytest-cov is installed."
        )
        return 0
    root = _repository("tests")
    check_pytest()
    has_coverage = importlib.util.find_spec("pytest_cov") is not None
    coverage = ["--cov=nemo_gym", "--cov-report=term"] if has_coverage else []
    return subprocess.run([sys.executable, "-m", "pytest", *coverage, *words], cwd=root, check=False).returncode


def reinstall(words: list[str]) -> int:
    """Reinstall the locked packages and this repository, as `make` does."""
    summary = "Reinstall the locked packages and this repository, as `make` does."
    line = Options("ng_reinstall", ReinstallSettings, summary, takes_config=False).read(words)
    plain = load(line.paths, line.overrides, skip_dotenv=True).plain
    settings = settings_from(ReinstallSettings, plain)
    root = _repository(*LOCKS)
    install = pip("install", sys.executable, plain)
    locks = [word for lock in LOCKS for word in ("-r", lock)]
    for command in (
        [*install, "--require-hashes", *locks],
        [*install, "--no-deps", "--no-build-isolation", "-e", "."],
    ):
        printing.say(shlex.join(command))
        if not settings.dry_run and (code := subprocess.run(command, cwd=root, check=False).returncode):
            return code
    return 0


def _repository(*needed: str) -> Path:
    root = paths.INSTALL_ROOT
    absent = [name for name in needed if not (root / name).exists()]
    if absent:
        raise LaunchError(
            f"{root}: not a checkout of the repository, because {' and '.join(absent)} is missing. Clone the "
            "repository and install it with make."
        )
    return root
