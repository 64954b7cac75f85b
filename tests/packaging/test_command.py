"""Environments as packages: packed in one project, installed in a fresh virtual environment, and run there by name."""

import re
import shutil
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.run_record import read_record

pytest.importorskip("hatchling", reason="building wheels needs hatchling: pip install hatchling")
REPOSITORY = Path(__file__).parents[2]
WHEEL = "nemo_gym_env_sums-1.2.0-py3-none-any.whl"
RUN = ("eval", "run", "--model-type", "sample_model", "--split", "example", "--head_server.port", "0")
SUMS = "nemo_gym_env_sums/resources_servers/sums"


@pytest.fixture(scope="module")
def project(shared_workplace):
    """A project with a new environment, and the result of packing it."""
    assert shared_workplace.run("ng_init_resources_server", "+entrypoint=resources_servers/sums").code == 0
    shared_workplace.write("resources_servers/sums/.env", "API_KEY=1")
    shared_workplace.write("resources_servers/sums/manifest.yaml", "licensing: Apache-2.0\nversion: 1.2.0\n")
    packed = shared_workplace.run("ng", "env", "pack", "resources_servers/sums")
    assert packed.code == 0, packed.err
    return shared_workplace, packed


@pytest.fixture(scope="module")
def wheel(project):
    return project[0].folder / "dist" / WHEEL


class Fresh:
    """A virtual environment that sees the packages of this one, and an empty folder in which its commands run."""

    def __init__(self, folder):
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv/bin/python"
        self.folder = folder / "empty"
        self.folder.mkdir()
        paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        self.site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
        (self.site / "outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n{REPOSITORY}\n")

    def ng(self, *words):
        command = [str(self.python), "-m", "nemo_gym", *map(str, words)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def fresh(tmp_path):
    return Fresh(tmp_path)


def changed(wheel, target, name, text):
    """Copy a wheel with another content of one file."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w") as new:
        for each in old.namelist():
            if each != name:
                new.writestr(each, old.read(each))
        new.writestr(name, text)
    return target


def test_installed_wheel_runs_by_name_with_its_digest(project, wheel, fresh):
    digest = project[1].out.split("the digest ")[1].split(":")[0]
    added = fresh.ng("env", "add", wheel)
    assert (added.returncode, digest in added.stdout) == (0, True), added.stderr
    assert "sums_simple_agent" in fresh.ng("list", "environments", "sums").stdout
    done = fresh.ng(*RUN, "--resources-server", "sums", "--output", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert len([row["reward"] for row in read_rows(fresh.folder / "out.jsonl")]) == 5
    of_run = read_record(fresh.folder / "out_run.json").environments["sums"]
    assert (of_run["version"], of_run["digest"][:12]) == ("1.2.0", digest)
    misspelt = fresh.ng(*RUN, "--resources-server", "suns", "--output", "no.jsonl")
    assert "Did you mean 'sums'?" in misspelt.stderr
    assert "promises kept" in fresh.ng("env", "check", "--resources-server", "sums").stdout


def test_changed_files_stop_a_run(wheel, fresh):
    assert fresh.ng("env", "add", wheel).returncode == 0
    (fresh.site / SUMS / "app.py").write_text("# nothing\n")
    stopped = fresh.ng(*RUN, "--resources-server", "sums", "--output", "out.jsonl")
    assert stopped.returncode == 1
    assert "resources_servers/sums/app.py was changed after 'sums' was packed. Install the" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert fresh.ng("env", "add", wheel).returncode == 0
    assert fresh.ng(*RUN, "--resources-server", "sums", "--output", "out.jsonl").returncode == 0


def test_wheel_has_no_tests_and_no_secrets(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{SUMS}/data/example.jsonl" in names
    assert not [name for name in names if "/tests/" in name or "/." in name]


def test_folders_of_the_project_that_its_config_uses_are_packed(workplace):
    assert workplace.run("ng_init_resources_server", "+entrypoint=resources_servers/sums").code == 0
    agent = workplace.folder / "responses_api_agents/quiet"
    shutil.copytree(REPOSITORY / "responses_api_agents/simple_agent", agent)
    config = workplace.folder / "resources_servers/sums/configs/sums.yaml"
    config.write_text(config.read_text().replace("    simple_agent:", "    quiet:"))
    workplace.write("resources_servers/sums/LICENSE", "Do as you like.")
    packed = workplace.run("ng", "env", "pack", "--resources-server", "sums", "--output", "wheels")
    assert packed.code == 0, packed.err
    names = zipfile.ZipFile(workplace.folder / "wheels/nemo_gym_env_sums-0.1.0-py3-none-any.whl").namelist()
    assert "nemo_gym_env_sums/responses_api_agents/quiet/app.py" in names
    assert "nemo_gym_env_sums-0.1.0.dist-info/licenses/LICENSE" in names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{SUMS}/app.py", "resources_servers/sums/app.py was changed after 'sums' was packed. Install"),
        (f"{SUMS}/extra.py", "resources_servers/sums/extra.py was added after 'sums' was packed. Install"),
        ("evil.pth", "evil.pth was added after 'sums' was packed. Install"),
        ("nemo_gym_env_sums/environment.json", "environment.json: "),
    ],
)
def test_changed_wheel_is_rejected(fresh, wheel, tmp_path, name, said):
    rejected = fresh.ng("env", "add", changed(wheel, tmp_path / WHEEL, name, "{}"))
    assert (rejected.returncode, said in rejected.stderr) == (1, True), rejected.stderr
    assert "Traceback" not in rejected.stderr
    assert not (fresh.site / SUMS).exists()


def test_names_that_exist_and_files_that_do_not_are_explained(project, wheel):
    workplace, _ = project
    taken = workplace.run("ng", "env", "add", f"dist/{WHEEL}")
    assert (taken.code, "its file resources_servers/sums/README.md exists already, at " in taken.err) == (1, True)
    missing = workplace.run("ng", "env", "add", f"dist/{WHEEL.replace('sums', 'suns')}")
    assert missing.err.endswith(f"there is no such file. Did you mean 'dist/{WHEEL}'?\n")
    no_wheel = workplace.run("ng", "env", "add", "resources_servers/sums/app.py")
    assert "cannot be read (File is not a zip file)" in no_wheel.err
    misspelt = workplace.run("ng", "env", "pack", "resources_servers/suns")
    assert "Did you mean 'resources_servers/sums'?" in misspelt.err


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("manifest.yaml", "licensing: unknown\n", "no licence. Add a file LICENSE, or a line such as 'licensing: "),
        ("manifest.yaml", "licensing: Apache 2.0\n", "licensing: 'Apache 2.0' is not an SPDX expression. Write it"),
        ("manifest.yaml", "licensing: MIT\nversion: first\n", "version: 'first' is not a version. Write it like"),
        ("requirements.txt", "--find-links wheels\n", "its requirement '-f wheels' cannot be part of a wheel. Write"),
        ("data/example.jsonl", "", "not packed, because a check failed. Correct it"),
    ],
)
def test_unusable_folders_are_not_packed(project, file, text, said):
    workplace, _ = project
    folder = f"{len(said)}/resources_servers/sums"
    shutil.copytree(workplace.folder / "resources_servers/sums", workplace.folder / folder, dirs_exist_ok=True)
    workplace.write(f"{folder}/{file}", text)
    within = workplace.start("ng", "env", "pack", "resources_servers/sums", within=folder.partition("/")[0])
    refused = within.wait()
    assert (refused.code, said in refused.err) == (1, True), refused.err
    assert not (workplace.folder / folder.partition("/")[0] / "dist").exists()


def test_requirements_of_the_folder_are_those_of_the_wheel(workplace):
    assert workplace.run("ng_init_resources_server", "+entrypoint=resources_servers/sums").code == 0
    workplace.write("resources_servers/sums/requirements.txt", "nemo-gym[gymnasium]\norjson>=3.10\n")
    workplace.write("resources_servers/sums/manifest.yaml", "licensing: {code: MIT, data: CC0-1.0}\n")
    packed = workplace.run("ng", "env", "pack", "resources_servers/sums")
    assert packed.code == 0, packed.err
    with zipfile.ZipFile(workplace.folder / "dist" / WHEEL.replace("1.2", "0.1")) as wheel:
        metadata = wheel.read("nemo_gym_env_sums-0.1.0.dist-info/METADATA").decode()
    assert re.findall("Requires-Dist: (.*)", metadata) == ["gymnasium>=1.2", "orjson>=3.10"]
    assert "License-Expression: MIT" in metadata
