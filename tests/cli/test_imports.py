"""The modules of commands do not import packages that they rarely need, because each one delays the start."""

import subprocess
import sys

import pytest

SERVING = {"fastapi", "uvicorn", "nemo_gym.testing"}
CLIENT = {"httpx"}
TERMINAL = {"rich"}
LAUNCHER = {"nemo_gym.launcher.local"}


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("env", SERVING | CLIENT | TERMINAL),
        ("rollouts", SERVING | CLIENT | TERMINAL),
        ("compare", SERVING | CLIENT | LAUNCHER),
        ("init", SERVING | CLIENT | LAUNCHER),
        ("folders", SERVING | CLIENT | LAUNCHER),
    ],
)
def test_command_imports_only_what_it_needs(module: str, unneeded: set[str]) -> None:
    program = f"import sys, nemo_gym.cli.{module}; print(*sorted({unneeded!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
