"""A folder's own environment, built by uv or by pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wheel import write_wheel

pytestmark = pytest.mark.slow

BUILD = """
import sys
from pathlib import Path

from nemo_gym.errors import LaunchError
from nemo_gym.launcher.environments import environment_for
from nemo_gym.launcher.requirements import Requirements

folder, plain = Path(sys.argv[1]), {"cache_dir": sys.argv[2]}
requirements = Requirements.of_folder(folder)
try:
    print(environment_for(folder, requirements, plain, notice=lambda text: print(text, file=sys.stderr)))
except LaunchError as error:
    sys.exit(str(error))
"""
LISTED = "--no-index\n-f wheels\n--constraint=limits.txt\ntinydep\n"

Start = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    """An interpreter with pip but without uv, whose nemo-gym needs no packages. No package index is necessary."""
    pytest.importorskip("ensurepip", reason="this Python cannot make an environment with pip")
    folder = tmp_path_factory.mktemp("interpreter")
    venv.create(folder, with_pip=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    info = packages / "nemo_gym-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nemo-gym\nVersion: 1.0\n")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if Path(path).is_dir()))
    return folder / "bin/python"


def start_with(interpreter: Path, uv: str | None, cache: Path) -> Start:
    """Return a function that starts to build a folder's environment."""

    def start(folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [interpreter, "-c", BUILD, folder, cache],
            env={**os.environ, "PATH": str(Path(uv).parent) if uv else ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def with_pip(interpreter, tmp_path):
    return start_with(interpreter, None, tmp_path / "cache")


@pytest.fixture
def with_uv(interpreter, tmp_path):
    uv = shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts"))
    return start_with(interpreter, uv or pytest.skip("uv is not installed"), tmp_path / "cache")


@pytest.fixture
def folder(tmp_path):
    """A server folder that requires the package tinydep, which is in a folder next to its requirements."""
    (tmp_path / "needy/wheels").mkdir(parents=True)
    write_wheel(tmp_path / "needy/wheels")
    (tmp_path / "needy/requirements.txt").write_text(LISTED)
    (tmp_path / "needy/limits.txt").write_text("tinydep==1.0\n")
    return tmp_path / "needy"


def finished(started: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a build prints as its result and as its progress and errors."""
    out, err = started.communicate()
    return out.strip(), err.strip()


def changes_in(folder: Path) -> dict[Path, int]:
    """Return the time of the last change of each file."""
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*") if "__pycache__" not in path.parts}


def imports(python: str, modules: str) -> bool:
    return subprocess.run([python, "-c", f"import {modules}"], check=False).returncode == 0


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_environment_is_built_once(request, folder, tmp_path, installer):
    start = request.getfixturevalue(f"with_{installer}")
    python, said = finished(start(folder))
    assert said == f"building an environment for {folder} with {installer} …"
    assert imports(python, "tinydep, nemo_gym.version")

    before = changes_in(tmp_path / "cache")
    assert finished(start(folder)) == (python, "")
    assert changes_in(tmp_path / "cache") == before


def test_changed_constraint_builds_another_environment(with_uv, folder):
    finished(with_uv(folder))
    (folder / "limits.txt").write_text("tinydep<1.0\n")
    python, said = finished(with_uv(folder))
    assert python == ""
    assert said.count(f"{folder}: '") == 1
    assert "uv pip install' failed with:\n" in said
    assert "tinydep<1.0" in said


def test_concurrent_builds_share_an_environment(with_uv, folder, tmp_path):
    (first, _), (second, _) = map(finished, [with_uv(folder), with_uv(folder)])
    assert first == second
    assert imports(first, "tinydep")
    assert [path.name for path in (tmp_path / "cache/environments").iterdir()] == [Path(first).parents[1].name]


def test_equal_relative_paths_are_different_packages(with_uv, folder, tmp_path):
    (folder / "requirements.txt").write_text("./wheels/tinydep-1.0-py3-none-any.whl\n")
    shutil.copytree(folder, tmp_path / "other")
    assert finished(with_uv(folder))[0] != finished(with_uv(tmp_path / "other"))[0]


def test_overrides_replace_requirements(with_uv, folder):
    (folder / "limits.txt").write_text("")
    (folder / "overrides.txt").write_text("tinydep==1.0\n")
    (folder / "requirements.txt").write_text(f"{LISTED}tinydep>=2\n")
    assert imports(finished(with_uv(folder))[0], "tinydep")


def test_overrides_without_uv_are_rejected(with_pip, folder):
    (folder / "overrides.txt").write_text("tinydep==1.0\n")
    _, said = finished(with_pip(folder))
    assert said.endswith(f"{folder}/overrides.txt: overrides need uv. Install it: pip install uv")


SERVER = """
import tinydep

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer

print("tinydep is", tinydep.__file__)


class Isolated(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return tinydep.REWARD
"""


def test_folder_runs_in_its_own_environment(workplace):
    word = workplace.environment("isolated", SERVER)
    wheel = write_wheel(workplace.folder)
    listed = workplace.write(
        "resources_servers/isolated/requirements.txt", f"-e nemo-gym @ ../../\ntinydep @ {wheel.as_uri()}\n"
    )
    plain = workplace.environment("plain")
    both = f"+config_paths=[{plain[15:-1]},{word[15:-1]}]"
    words = [both, "+head_server.port=0", f"+cache_dir={workplace.folder}/cache"]

    without = workplace.run("ng_run", *words, "+dry_run=true")
    assert without.code == 1
    assert f"{listed}:2 requires tinydep @ {wheel.as_uri()}, but tinydep is not installed" in without.err
    assert f"To install it here: pip install 'tinydep @ {wheel.as_uri()}'" in without.err

    command = workplace.start("ng_run", *words, "+auto_install=true")
    try:
        printed = command.wait_for("head server: ")
    except AssertionError as error:
        if "dns error" in str(error) or "error sending request" in str(error):
            pytest.skip("the package registry cannot be reached")
        raise
    assert f"tinydep is {workplace.folder}/cache/environments/" in printed
    command.end()

    # The cached environment is used.
    again = workplace.run("ng_run", *words, "+auto_install=true", "+dry_run=true")
    assert (again.code, "building" in again.err) == (0, False), again.err
    assert workplace.left_over() == []
