"""Tests of a new environment, created and used by its commands in a folder outside of the repository."""

import math
import os
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from nemo_gym.cli.init import LONGEST_NAME, TEMPLATES, class_name_of, scaffold, template_files
from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows

pytestmark = pytest.mark.slow

SCRIPTS = Path(sysconfig.get_path("scripts"))
REPOSITORY = Path(__file__).parents[3]
TEMPLATE = TEMPLATES / "resources_servers" / "my_environment"


@pytest.fixture(scope="module")
def project(shared_workplace):
    """A folder outside of the repository with a new environment, and the command's output."""
    path = os.pathsep.join([str(SCRIPTS), os.environ["PATH"]])
    made = shared_workplace.run("ng_init_resources_server", "+entrypoint=resources_servers/my_env", PATH=path)
    assert made.code == 0, made.err
    return shared_workplace, made.out


def commands_in(text):
    """Return the commands in a text: its indented lines."""
    return [shlex.split(line) for line in text.splitlines() if line.startswith("    ")]


def test_new_environment_has_all_files(project):
    folder = project[0].folder
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {file for file in files if "__pycache__" not in file and file.startswith("resources_servers")} == {
        "resources_servers/my_env/README.md",
        "resources_servers/my_env/app.py",
        "resources_servers/my_env/configs/my_env.yaml",
        "resources_servers/my_env/data/.gitignore",
        "resources_servers/my_env/data/example.jsonl",
        "resources_servers/my_env/data/example_metrics.json",
        "resources_servers/my_env/data/example_rollouts.jsonl",
        "resources_servers/my_env/oracle.py",
        "resources_servers/my_env/prepare.py",
        "resources_servers/my_env/ruff.toml",
        "resources_servers/my_env/tests/test_app.py",
        "resources_servers/my_env/tests/test_prepare.py",
    }


def test_template_name_is_replaced_everywhere(project):
    folder = project[0].folder
    for path in (folder / "resources_servers").rglob("*.*"):
        if path.suffix != ".pyc":
            text = path.read_text("utf-8")
            assert "my_environment" not in text, path
            assert "MyEnvironment" not in text, path


def test_new_environment_lints(project):
    workplace, _ = project
    checked = workplace.run("ruff", "check", "resources_servers")
    assert checked.code == 0, checked.out
    formatted = workplace.run("ruff", "format", "--check", "resources_servers")
    assert formatted.code == 0, formatted.out


def test_first_printed_command_runs_the_tests(project):
    workplace, printed = project
    command = commands_in(printed)[0]
    assert command == ["ng", "env", "test", "--resources-server", "my_env"]
    tested = workplace.run(*command)
    assert tested.code == 0, tested.out
    assert "17 passed" in tested.out


def test_printed_commands_work_without_activated_environment(workplace):
    (workplace.folder / ".venv").symlink_to(SCRIPTS.parent)

    def paste(line):
        env = {**workplace.env, "PATH": os.defpath}
        command = ["/bin/sh", "-c", line]
        return subprocess.run(command, cwd=workplace.folder, env=env, capture_output=True, text=True, check=False)

    made = paste(".venv/bin/ng_init_resources_server +entrypoint=resources_servers/my_env")
    assert made.returncode == 0, made.stderr
    lines = [line.strip() for line in made.stdout.splitlines() if line.startswith("    ")]
    names = ["env test", "env check", "eval run", "dataset collate", "env check"]
    assert [" ".join(line.split()[:3]) for line in lines] == [f".venv/bin/ng {name}" for name in names]
    for line in (lines[0], lines[3]):
        pasted = paste(line)
        assert pasted.returncode == 0, pasted.stdout + pasted.stderr


def test_examples_are_complete(project):
    workplace, _ = project
    tested = workplace.run("ng_test", "+entrypoint=resources_servers/my_env", "+should_validate_data=true")
    assert tested.code == 0, tested.out + tested.err
    assert "the examples of resources_servers/my_env are complete" in tested.out


def test_second_printed_command_finds_all_promises_kept(project):
    workplace, printed = project
    command = commands_in(printed)[1]
    assert command == ["ng", "env", "check", "--resources-server", "my_env"]
    checked = workplace.run(*command)
    assert checked.code == 0, checked.out
    assert checked.out.endswith("resources_servers/my_env: 11 of 11 promises kept\n")


def test_third_printed_command_scores_the_examples(project):
    workplace, printed = project
    command = commands_in(printed)[2]
    assert command[:3] == ["ng", "eval", "run"]
    collected = workplace.run(*command, "+head_server.port=0")
    assert collected.code == 0, collected.out + collected.err
    rewards = [row["reward"] for row in read_rows(workplace.folder / "results" / "my_env.jsonl")]
    assert len(rewards) == 5
    assert all(math.isfinite(reward) for reward in rewards)
    # A random policy finds some of the numbers, so both rewards occur.
    assert set(rewards) == {0.0, 1.0}


def test_fourth_printed_command_makes_valid_rows(project):
    workplace, printed = project
    command = commands_in(printed)[3]
    assert command[:3] == ["ng", "dataset", "collate"]
    made = workplace.run(*command)
    assert made.code == 0, made.err
    data = workplace.folder / "resources_servers/my_env/data"
    train, validation = (list(read_rows(data / f"{split}.jsonl")) for split in ("train", "validation"))
    assert (len(train), len(validation)) == (50, 5)
    assert not any(row in train for row in validation)
    rows = data / "train.jsonl"
    checked = workplace.run("ng_check", "+entrypoint=resources_servers/my_env", f"+rows_jsonl_fpath={rows}")
    assert checked.code == 0, checked.out
    assert "full reward on 55 rows" in checked.out


def test_fifth_printed_command_reproduces_the_examples(project):
    workplace, printed = project
    data = workplace.folder / "resources_servers" / "my_env" / "data"
    examples = [data / "example_metrics.json", data / "example_rollouts.jsonl"]
    before = [path.read_bytes() for path in examples]
    for path in examples:
        path.unlink()
    command = commands_in(printed)[4]
    assert command == ["ng", "env", "check", "--resources-server", "my_env", "--write-examples"]
    checked = workplace.run(*command)
    assert checked.code == 0, checked.out
    assert [path.read_bytes() for path in examples] == before


REPLACED_APP = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Replaced(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def test_replaced_class_keeps_remaining_tests_passing(workplace):
    folder = scaffold("resources_servers/mine", workplace.folder).folder
    (folder / "app.py").write_text(REPLACED_APP)
    (folder / "tests/test_app.py").write_text("def test_nothing():\n    pass\n")
    tested = workplace.run("ng_test", "+entrypoint=resources_servers/mine")
    assert (tested.code, "3 passed" in tested.out) == (0, True), tested.out


def test_example_rollouts_do_not_block_a_run(workplace):
    folder = scaffold("resources_servers/mine", workplace.folder).folder
    rollouts = folder / "data/example_rollouts.jsonl"
    words = ("--resources-server", "mine", "--model-type", "sample_model", "--split", "example", "-o", str(rollouts))
    first = workplace.run("ng", "eval", "run", *words)
    assert first.code == 0, first.err
    played = rollouts.read_bytes()
    second = workplace.run("ng", "eval", "run", *words)
    assert (second.code, rollouts.read_bytes()) == (1, played)
    assert "Add --resume to continue it, --overwrite " in second.err
    assert workplace.run("ng", "eval", "run", *words, "--overwrite").code == 0


def test_readme_has_the_printed_commands(project):
    workplace, printed = project
    readme = (workplace.folder / "resources_servers" / "my_env" / "README.md").read_text("utf-8")
    assert commands_in(readme) == commands_in(printed)


def test_existing_folder_is_not_changed(project):
    workplace, _ = project
    file = workplace.folder / "resources_servers" / "my_env" / "app.py"
    before = file.stat()
    again = workplace.run("ng_init_resources_server", "+entrypoint=resources_servers/my_env")
    assert again.code == 1
    assert "already exists" in again.err
    assert "Traceback" not in again.err
    assert file.stat() == before


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
        ("resources_servers/2048", "start with a letter"),
        ("resources_servers/überall", "Did you mean 'resources_servers/uberall'?"),
        ("resources_servers/class", "Choose another name"),
        ("resources_servers/verbose", "Choose another name"),
        ("resources_servers/off", "YAML reads it as a constant"),
        ("resources_servers/policy_model", "Choose another name"),
        ("resources_servers/" + "a" * (LONGEST_NAME + 1), "longer than"),
        ("resources_servers", "Write --resources-server my_env"),
        ("", "Write --resources-server my_env"),
        ("resources_servers/mcqa", "has the same name"),
    ],
)
def test_invalid_name_is_rejected_with_advice(tmp_path, entrypoint, advice):
    with pytest.raises(DataError) as refusal:
        scaffold(entrypoint, tmp_path)
    assert advice in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entrypoint", ["resources_servers/one/", "./resources_servers/one"])
def test_path_may_be_spelled_differently(tmp_path, entrypoint):
    made = scaffold(entrypoint, tmp_path)
    assert made.folder == tmp_path / "resources_servers" / "one"
    assert (made.folder / "app.py").is_file()


def test_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "resources_servers").write_text("a file is in the way")
    with pytest.raises(DataError, match="cannot be written"):
        scaffold("resources_servers/my_env", tmp_path)


@pytest.mark.parametrize("name", ["a", "A1_b", "x" * LONGEST_NAME, "my_environment", "trailing_"])
def test_folder_lints_with_any_name(workplace, name):
    scaffold(f"resources_servers/{name}", workplace.folder)
    checked = workplace.run("ruff", "check", "resources_servers")
    assert checked.code == 0, checked.out
    formatted = workplace.run("ruff", "format", "--check", "resources_servers")
    assert formatted.code == 0, formatted.out


@pytest.mark.parametrize(
    ("name", "expected"), [("my_env", "MyEnv"), ("counter", "Counter"), ("grl_sokoban", "GrlSokoban"), ("a_1b", "A1b")]
)
def test_class_is_named_after_the_folder(name, expected):
    assert class_name_of(name) == expected


def test_template_runs_in_place(workplace):
    tested = workplace.run(
        "ng_test",
        "+entrypoint=resources_servers/my_environment",
        NEMO_GYM_EXTRA_ROOTS=str(TEMPLATES),
        PYTHONDONTWRITEBYTECODE="1",
        PYTEST_ADDOPTS="-p no:cacheprovider",
    )
    assert tested.code == 0, tested.out + tested.err


def test_wheel_contains_the_template(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for path in template_files(TEMPLATES):
        assert f"nemo_gym/cli/init/templates/{path.relative_to(TEMPLATES).as_posix()}" in names


def test_every_template_file_is_written(tmp_path):
    made = scaffold("resources_servers/my_environment", tmp_path)
    written = {path.relative_to(made.folder) for path in made.folder.rglob("*") if path.is_file()}
    assert written == {path.relative_to(TEMPLATE) for path in template_files(TEMPLATE)}
    for path in written:
        assert (made.folder / path).read_text("utf-8") == (TEMPLATE / path).read_text("utf-8")
