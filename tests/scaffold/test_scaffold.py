"""A new environment: written by its command, then used as its user would, in a folder outside of the repository."""

import math
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.scaffold import LONGEST_NAME, TEMPLATES, class_name_of, scaffold

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TEMPLATE = TEMPLATES / "resources_servers" / "my_environment"


def run(words, folder, **environment):
    """Run a command in a folder: the finished process, its output as text."""
    kept = {key: value for key, value in os.environ.items() if key != "NEMO_GYM_EXTRA_ROOTS"}
    return subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder of a user's own with a new environment in it, and what the command printed."""
    folder = tmp_path_factory.mktemp("project")
    made = run(["ng_init_resources_server", "+entrypoint=resources_servers/my_env"], folder)
    assert made.returncode == 0, made.stderr
    return folder, made.stdout


def commands_in(text):
    """The commands that a text tells to run: its indented lines."""
    return [shlex.split(line) for line in text.splitlines() if line.startswith("    ")]


def test_a_new_environment_has_the_files_of_any_other(project):
    folder, _ = project
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {file for file in files if "__pycache__" not in file and file.startswith("resources_servers")} == {
        "resources_servers/my_env/README.md",
        "resources_servers/my_env/app.py",
        "resources_servers/my_env/configs/my_env.yaml",
        "resources_servers/my_env/data/example.jsonl",
        "resources_servers/my_env/tests/test_app.py",
    }


def test_nothing_of_the_template_s_name_is_left(project):
    folder, _ = project
    for path in (folder / "resources_servers").rglob("*.*"):
        if path.suffix != ".pyc":
            text = path.read_text("utf-8")
            assert "my_environment" not in text, path
            assert "MyEnvironment" not in text, path


def test_a_new_environment_lints(project):
    folder, _ = project
    config = ["--no-cache", "--config", str(REPOSITORY / "pyproject.toml"), "resources_servers"]
    checked = run(["ruff", "check", *config], folder)
    assert checked.returncode == 0, checked.stdout
    formatted = run(["ruff", "format", "--check", *config], folder)
    assert formatted.returncode == 0, formatted.stdout


def test_the_first_command_that_is_named_runs_its_tests(project):
    folder, printed = project
    command = commands_in(printed)[0]
    assert command == ["ng_test", "+entrypoint=resources_servers/my_env"]
    tested = run(command, folder)
    assert tested.returncode == 0, tested.stdout
    assert "14 passed" in tested.stdout


def test_the_second_command_that_is_named_scores_its_examples(project):
    folder, printed = project
    command = commands_in(printed)[1]
    assert command[0] == "ng_e2e_collect_rollouts"
    collected = run([*command, "+head_server.port=0"], folder, XDG_RUNTIME_DIR=str(folder))
    assert collected.returncode == 0, collected.stdout + collected.stderr
    rewards = [row["reward"] for row in read_rows(folder / "results" / "my_env.jsonl")]
    assert len(rewards) == 5
    assert all(math.isfinite(reward) for reward in rewards)
    # A policy that acts at random finds some of the numbers, so a first look shows both rewards.
    assert set(rewards) == {0.0, 1.0}


def test_the_readme_names_the_same_commands(project):
    folder, printed = project
    readme = (folder / "resources_servers" / "my_env" / "README.md").read_text("utf-8")
    assert commands_in(readme) == commands_in(printed)


def test_a_folder_that_is_there_is_left_alone(project):
    folder, _ = project
    before = {path: path.read_bytes() for path in (folder / "resources_servers").rglob("*.jsonl")}
    again = run(["ng_init_resources_server", "+entrypoint=resources_servers/my_env"], folder)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert "Traceback" not in again.stderr
    assert {path: path.read_bytes() for path in (folder / "resources_servers").rglob("*.jsonl")} == before


@pytest.mark.parametrize(
    ("entrypoint", "advice"),
    [
        ("my_env", "Did you mean 'resources_servers/my_env'?"),
        ("My-Env", "Did you mean 'resources_servers/my_env'?"),
        ("resource_servers/my_env", "Did you mean 'resources_servers/my_env'?"),
        ("resources_servers/my_env/app.py", "Did you mean 'resources_servers/my_env'?"),
        ("/somewhere/resources_servers/my_env", "Did you mean 'resources_servers/my_env'?"),
        ("../resources_servers/my_env", "Did you mean 'resources_servers/my_env'?"),
        ("resources_servers/my-env", "Did you mean 'resources_servers/my_env'?"),
        ("resources_servers/2048", "begin with a letter"),
        ("resources_servers/überall", "Did you mean 'resources_servers/uberall'?"),
        ("resources_servers/class", "Choose another name"),
        ("resources_servers/verbose", "Choose another name"),
        ("resources_servers/policy_model", "Choose another name"),
        ("resources_servers/" + "a" * (LONGEST_NAME + 1), "longer than"),
        ("resources_servers", "Write +entrypoint=resources_servers/my_env"),
        ("", "Write +entrypoint=resources_servers/my_env"),
        ("resources_servers/mcqa", "there is an environment of this name"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_advice(tmp_path, entrypoint, advice):
    with pytest.raises(DataError) as refusal:
        scaffold(entrypoint, tmp_path)
    assert advice in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entrypoint", ["resources_servers/one/", "./resources_servers/one"])
def test_the_same_path_may_be_spelled_in_other_ways(tmp_path, entrypoint):
    made = scaffold(entrypoint, tmp_path)
    assert made.folder == tmp_path / "resources_servers" / "one"
    assert list(made.files) == sorted(path for path in made.folder.rglob("*") if path.is_file())


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "resources_servers").write_text("a file is in the way")
    with pytest.raises(DataError, match="cannot be written"):
        scaffold("resources_servers/my_env", tmp_path)


@pytest.mark.parametrize("name", ["a", "A1_b", "x" * LONGEST_NAME, "my_environment", "trailing_"])
def test_any_name_gives_a_folder_that_lints(tmp_path, name):
    made = scaffold(f"resources_servers/{name}", tmp_path)
    config = ["--no-cache", "--config", str(REPOSITORY / "pyproject.toml"), str(made.folder)]
    checked = run(["ruff", "check", *config], tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert run(["ruff", "format", "--check", *config], tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("name", "expected"), [("my_env", "MyEnv"), ("counter", "Counter"), ("grl_sokoban", "GrlSokoban"), ("a_1b", "A1b")]
)
def test_the_class_is_named_after_the_folder(name, expected):
    assert class_name_of(name) == expected


def test_the_template_runs_where_it_lies(tmp_path):
    command = ["ng_test", "+entrypoint=resources_servers/my_environment"]
    environment = {
        "NEMO_GYM_EXTRA_ROOTS": str(TEMPLATES),
        "PYTHONPATH": str(TEMPLATES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    tested = run(command, tmp_path, **environment)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_wheel_holds_the_template(tmp_path):
    built = run(["python", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], REPOSITORY)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for path in scaffold("resources_servers/my_environment", tmp_path).files:
        inside = path.relative_to(tmp_path)
        assert f"nemo_gym/scaffold/templates/{inside.as_posix()}" in names


def test_every_file_of_the_template_is_written(tmp_path):
    made = scaffold("resources_servers/my_environment", tmp_path)
    for path in made.files:
        assert path.read_text("utf-8") == (TEMPLATE / path.relative_to(made.folder)).read_text("utf-8")
