"""A folder's requirements, the check that they are met, and the folder's own environment."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from nemo_gym.errors import LaunchError
from nemo_gym.launcher import environments
from nemo_gym.launcher.requirements import Requirements
from tests.wheel import write_wheel

pytestmark = pytest.mark.slow


def read(folder: Path, text: str, **others: str) -> Requirements:
    (folder / "requirements.txt").write_text(text)
    for name, content in others.items():
        (folder / f"{name}.txt").write_text(content)
    return Requirements.of_folder(folder)


@pytest.mark.parametrize(
    ("line", "extras"),
    [
        ("-e nemo-gym[dev] @ ../../", {"dev"}),
        ("-e nemo-gym[dev,sandbox] @ ../../", {"dev", "sandbox"}),
        ("-e ../../", set()),
        ("../..", set()),
        ("nemo-gym", set()),
        ("nemo_gym[math]>=0.5", {"math"}),
        ("nemo-gym @ ../../", set()),
    ],
)
def test_framework_itself_is_always_met(tmp_path, line, extras):
    requirements = read(tmp_path, f"{line}\n")
    assert (requirements.needed, requirements.lines, requirements.extras) == ((), (), extras)


def test_similar_package_name_is_not_the_framework(tmp_path):
    assert [each.requirement.name for each in read(tmp_path, "nemo-gym-extras\n").needed] == ["nemo-gym-extras"]


@pytest.mark.parametrize(
    "text",
    [
        "pydantic\n",
        f"pydantic=={version('pydantic')}\n",
        "# a comment\n\npydantic>=2 # and another\n",
        "pydantic>=2,\\\n  <99\n",
        "no-such-package; python_version < '3'\n",
        "--extra-index-url file:///nowhere\n-c constraints.txt\n",
        "-e ./a_package_of_its_own\n",
        "./wheels/something-1.0-py3-none-any.whl\n",
        "pydantic --hash=sha256:00\n",
    ],
)
def test_met_requirements_are_not_reported(tmp_path, text):
    assert read(tmp_path, text).unmet() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-e nemo-gym[dev] @ ../../\nno-such-package>=1\n",
         "requirements.txt:2 requires no-such-package>=1, but no-such-package is not installed"),
        ("pydantic<2\n", f"requirements.txt:1 requires pydantic<2, but pydantic {version('pydantic')} is installed"),
        ("no-such @ git+https://example.org/no-such\n",
         "requirements.txt:1 requires no-such @ git+https://example.org/no-such, but no-such is not installed"),
        ("a-name>=1, \\\n <2\n", "requirements.txt:1 requires a-name<2,>=1, but a-name is not installed"),
    ],
)  # fmt: skip
def test_unmet_requirement_reports_its_location(tmp_path, text, message):
    (unmet,) = read(tmp_path, text).unmet()
    assert str(unmet) == f"{tmp_path}/{message}"


def test_included_files_are_read_once(tmp_path):
    requirements = read(tmp_path, "-r more.txt\nfirst-missing\n", more="-r requirements.txt\n\nsecond-missing\n")
    places = [str(unmet).split(" requires")[0] for unmet in requirements.unmet()]
    assert places == [f"{tmp_path}/more.txt:3", f"{tmp_path}/requirements.txt:2"]


def test_pyproject_dependencies_are_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "folder"\ndependencies = [\n  "nemo-gym[dev]",\n  "no-such-package",\n]\n'
    )
    (unmet,) = Requirements.of_folder(tmp_path).unmet()
    assert str(unmet).startswith(f"{tmp_path}/pyproject.toml:5 requires no-such-package")


def test_invalid_requirement_reports_its_location(tmp_path):
    with pytest.raises(LaunchError, match=r"requirements\.txt:2: 'two words' is not a requirement"):
        read(tmp_path, "pydantic\ntwo words\n")


def test_folder_without_requirements_needs_nothing(tmp_path):
    assert Requirements.of_folder(tmp_path).unmet() == []


def test_packages_are_found_where_the_options_say(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_of_framework", lambda extras: [])
    wheels = write_wheel(tmp_path).parent
    requirements = read(tmp_path, f"--no-index\n--find-links {wheels}\ntinydep\n")
    assert requirements.sources == ["--no-index", f"--find-links {wheels}"]
    settings = {"cache_dir": str(tmp_path / "cache")}
    python = environments.environment_for(tmp_path, requirements, settings, notice=lambda _: None)
    subprocess.run([python, "-c", "import tinydep"], check=True)


def test_files_next_to_the_requirements_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_of_framework", lambda extras: [])
    (tmp_path / "wheels").mkdir()
    write_wheel(tmp_path / "wheels")
    settings = {"cache_dir": str(tmp_path / "cache")}

    def install(limit):
        requirements = read(tmp_path, "--no-index\n-f wheels\n--constraint=limits.txt\ntinydep\n", limits=limit)
        return environments.environment_for(tmp_path, requirements, settings, notice=lambda _: None)

    subprocess.run([install("tinydep==1.0"), "-c", "import tinydep"], check=True)
    with pytest.raises(LaunchError, match="tinydep<1"):
        install("tinydep<1.0")


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

    # The cached resolution and environment are used.
    again = workplace.run("ng_run", *words, "+auto_install=true", "+dry_run=true")
    assert (again.code, "resolving" in again.err, "building" in again.err) == (0, False, False), again.err
    assert workplace.left_over() == []
