"""The Makefile does not use a virtual environment that was made for another checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def dry_run(folder: Path, goal: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run `make --dry-run` in a folder with a program of a virtual environment that was made in `place`."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(REPOSITORY / name, folder)
    program = folder / ".venv" / "bin" / "ng"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{place}/.venv/bin/python\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", goal]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("place", [Path("/nowhere"), REPOSITORY])
def test_environment_of_another_place_needs_make_clean(tmp_path: Path, place: Path) -> None:
    done = dry_run(tmp_path, "demo", place)
    assert done.returncode == 2
    assert f".venv was made in {place}, not here. Run `make clean`, then this command again." in done.stderr


@pytest.mark.parametrize(("goal", "made_in"), [("clean", "/nowhere"), ("demo", "")])
def test_make_clean_and_an_environment_of_this_place_work(tmp_path: Path, goal: str, made_in: str) -> None:
    done = dry_run(tmp_path, goal, Path(made_in) if made_in else tmp_path)
    assert "make clean" not in done.stderr
    assert done.stdout
