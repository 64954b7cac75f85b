"""A folder's requirements, and the check that they are met."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from nemo_gym.errors import LaunchError
from nemo_gym.launcher.requirements import Requirements

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
        ("pydantic\na-name \\\n", "requirements.txt:2 requires a-name, but a-name is not installed"),
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
