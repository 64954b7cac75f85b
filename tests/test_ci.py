"""The exit codes of CI: `.ci/run` has that of its last step; `.ci/tests` runs what failed again, and names it."""

import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[1] / ".ci"
SCRIPT = (CI / "run").read_text()
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
CLEANUP = next(line for line in SCRIPT.splitlines() if line.startswith("trap "))


@pytest.mark.parametrize("job", ["", "sleep 60 &", "true & wait $!"])
@pytest.mark.parametrize(("last", "code"), [("true", 0), ("false", 1)])
def test_cleanup_keeps_the_exit_code(tmp_path: Path, job: str, last: str, code: int) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    lines = ["set -euo pipefail", f"logs={logs}", CLEANUP, job, last]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, logs.exists()) == (code, "", False)


@pytest.mark.parametrize(
    ("failing", "code", "flaky"),
    [
        ("", 0, ""),
        # Fails in the first run only, in the second one too, and always.
        ("runs < 2", 0, "test_it.py::test_it[0]\n"),
        ("runs < 3", 1, ""),
        ("True", 1, ""),
        # Four failures in the first run.
        ("runs < 8 and number > 2", 1, ""),
    ],
)
def test_failed_tests_run_again_and_are_named(tmp_path: Path, failing: str, code: int, flaky: str) -> None:
    count = 7 if "number" in failing else 1
    (tmp_path / "test_it.py").write_text(
        f"""
import pathlib
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_it(number):
    with pathlib.Path("runs").open("a") as file:
        file.write(".")
    runs = len(pathlib.Path("runs").read_text())
    assert not ({failing or False})
"""
    )
    done = subprocess.run(
        [CI / "tests", "60"],
        cwd=tmp_path,
        env={"PYTHON": sys.executable, "FLAKY": "flaky", "PATH": "/usr/bin:/bin", **QUICK},
        capture_output=True,
        text=True,
        check=False,
    )
    named = tmp_path / "flaky"
    assert done.returncode == code, done.stdout + done.stderr
    assert (named.read_text() if named.exists() else "") == flaky


def test_nothing_selected_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").touch()
    command = [CI / "tests", "60", "-m", "absent"]
    assert subprocess.run(command, cwd=tmp_path, env={"PYTHON": sys.executable, **QUICK}, check=False).returncode == 5


@pytest.mark.parametrize("problem", ["npm error code ECONNREFUSED", ""])
def test_agents_that_cannot_be_installed_are_skipped(tmp_path: Path, problem: str) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/agents").write_text((CI / "agents").read_text())
    (tmp_path / "Makefile").write_text(f"agents-%:\n\t@echo '{problem}' && mkdir -p .agents/$* && false\n")
    for name in ("npm", "python"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": str(tmp_path / "python")}
    command = ["bash", ".ci/agents"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"agents: pi is skipped, because make agents-pi failed: {problem}\n" in done.stdout
    assert list((tmp_path / ".agents").iterdir()) == []
    assert "tests/agents/test_programs.py" in done.stdout.splitlines()[-1]
