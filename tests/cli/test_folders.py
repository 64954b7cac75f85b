"""Tests of the commands on folders and on the repository: tests, packages, environments, reinstalling."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import orjson
import pytest

from nemo_gym.errors import LaunchError
from nemo_gym.launcher.folder_tests import run_tests
from tests.wheel import write_wheel

pytestmark = pytest.mark.slow

GOOD = "def test_it():\n    assert True\n"
BAD = "import pytest\n\ndef test_it():\n    assert False\n\n@pytest.mark.skip\ndef test_other():\n    pass\n"


def folder(workplace, name, *tests, tier="resources_servers"):
    workplace.write(f"{tier}/{name}/app.py", "")
    for number, test in enumerate(tests):
        workplace.write(f"{tier}/{name}/tests/test_{number}.py", test)


def table_of(finished):
    lines = finished.out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:2] == ["folder", "passed"])
    return [line.split()[:5] for line in lines[start + 1 : -1]], lines[-1]


def test_missing_pytest_is_installed_for_the_tests(workplace, monkeypatch):
    folder(workplace, "good", "import tinydep\n\n" + GOOD)
    tested = workplace.folder / "resources_servers" / "good"
    cache = {"cache_dir": str(workplace.folder / "cache")}
    # `make demo` does not install it.
    monkeypatch.setitem(sys.modules, "pytest_asyncio", None)
    for name in ("UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(workplace.folder / "uv"))
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, str(workplace.folder / "wheels"))
    (workplace.folder / "wheels").mkdir()
    with pytest.raises(LaunchError, match=r"lacks pytest-asyncio, .*\. Run make dev in a clone"):
        run_tests(tested, cache)
    write_wheel(workplace.folder / "wheels", "pytest-asyncio")
    assert run_tests(tested, cache).passed == 1
    shutil.rmtree(workplace.folder / "wheels")
    assert run_tests(tested, cache).passed == 1


def test_folder_of_an_environment_is_tested_by_name(workplace):
    folder(workplace, "garden", GOOD, tier="environments")
    workplace.write("environments/garden/config.yaml", "config_paths: []\n")
    finished = workplace.run("ng", "env", "test", "garden")
    assert (finished.code, "1 passed" in finished.out) == (0, True), finished.err


def test_all_folders_are_tested_and_counted(workplace):
    folder(workplace, "good", GOOD, GOOD)
    folder(workplace, "bad", BAD)
    folder(workplace, "bare")
    folder(workplace, "good", GOOD, tier="responses_api_agents")
    finished = workplace.run("ng_test_all")
    rows, last = table_of(finished)
    assert finished.code == 1
    assert rows == [
        ["✗", "resources_servers/bad", "0", "1", "1"],
        ["–", "resources_servers/bare", "0", "0", "0"],
        ["✓", "resources_servers/good", "2", "0", "0"],
        ["✓", "responses_api_agents/good", "1", "0", "0"],
    ]
    assert last == (
        "4 folders = 2 passed + 1 failed + 1 without tests (failed: resources_servers/bad; without tests: "
        "resources_servers/bare)"
    )


WAITING_TEST = """
import time

def test_it(capfd):
    with capfd.disabled():
        print("begun", flush=True)
    time.sleep(600)
"""
WAITING_SERVER = """
import asyncio
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Waiting(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        print("verifying", flush=True)
        await asyncio.sleep(600)
        return 1.0
"""
WAITING_CONFIG = """
waiting:
  resources_servers:
    waiting: {entrypoint: app.py}
waiting_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: waiting}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""

BY_PLACE = """
from pathlib import Path

from helpers import WORD
from nemo_gym.prompt import load_prompt_config


def test_it():
    assert Path("data/words.txt").read_text() == WORD
    assert load_prompt_config("prompts/p.yaml").user == "Hi"
"""


def test_tests_run_inside_their_folder(workplace):
    folder(workplace, "placed", BY_PLACE)
    workplace.write("resources_servers/placed/tests/helpers.py", "WORD = 'plum'")
    workplace.write("resources_servers/placed/data/words.txt", "plum")
    workplace.write("prompts/p.yaml", "user: Hi")
    (workplace.folder / "resources_servers/placed/app.py").rename(
        workplace.folder / "resources_servers/placed/pyproject.toml"
    )
    assert workplace.run("ng_test", "+entrypoint=resources_servers/placed").code == 0
    assert table_of(workplace.run("ng_test_all"))[0] == [["✓", "resources_servers/placed", "1", "0", "0"]]


@pytest.mark.slow
def test_folders_are_split_into_shards(workplace):
    for name in "abc":
        folder(workplace, name, GOOD)
    seen = []
    for index in (0, 1):
        finished = workplace.run("ng", "env", "test", "+num_shards=2", f"+shard_index={index}")
        assert finished.code == 0
        seen.append([row[1][-1] for row in table_of(finished)[0]])
    assert seen == [["a", "c"], ["b"]]
    assert workplace.run("ng_test_all", "+num_shards=2", "+shard_index=2") == (
        1,
        "",
        "Error: shard_index=2 is out of range: with num_shards=2, use 0 to 1.\n",
    )


@pytest.mark.parametrize(("word", "code"), [("false", 0), ("true", 1)])
def test_folder_without_tests_fails_only_if_asked(workplace, word, code):
    folder(workplace, "good", GOOD)
    folder(workplace, "bare")
    words = (f"+fail_on_total_and_test_mismatch={word}", "+delete_venvs_after_each_test=true")
    assert workplace.run("ng_test_all", *words).code == code


def test_reports_are_written_to_configured_folder(workplace):
    folder(workplace, "good", GOOD)
    (workplace.folder / "reports").mkdir()
    assert workplace.run("ng_test_all", GYM_CI_JUNIT_DIR="reports").code == 0
    assert [path.name for path in (workplace.folder / "reports").iterdir()] == ["resources_servers_good.xml"]


def test_only_the_named_folder_is_tested(workplace):
    folder(workplace, "good", GOOD)
    folder(workplace, "bad", BAD)
    finished = workplace.run("ng", "env", "test", "--resources-server", "good")
    assert (finished.code, "1 passed" in finished.out, "xml file" in finished.out) == (0, True, False)
    assert workplace.run("ng_test", "+entrypoint=resources_servers/bad").code == 1


def test_folder_is_tested_by_its_path(workplace):
    folder(workplace, "good", GOOD)
    finished = workplace.run("ng", "env", "test", str(workplace.folder / "resources_servers/good"))
    assert (finished.code, "1 passed" in finished.out) == (0, True), finished.err


def test_folder_without_tests_is_reported(workplace):
    folder(workplace, "bare")
    finished = workplace.run("ng_test", "+entrypoint=resources_servers/bare")
    assert finished.code == 1
    assert finished.err.endswith("no tests/ folder. Write a first test in tests/test_app.py.\n")


def test_folder_without_test_functions_is_reported(workplace):
    folder(workplace, "bare", "")
    finished = workplace.run("ng_test", "+entrypoint=resources_servers/bare")
    assert finished.code == 1
    assert finished.err == (
        f"Error: {workplace.folder}/resources_servers/bare/tests: no test found. Write a function test_… in "
        "tests/test_app.py.\n"
    )


@pytest.mark.parametrize(("program", "line"), [("ng_test", "begun"), ("ng_check", "verifying")])
def test_interrupted_command_says_so(workplace, program, line):
    workplace.write("rows.jsonl", '{"responses_create_params": {"input": "x"}}\n')
    files = {"app.py": WAITING_SERVER, "tests/test_app.py": WAITING_TEST, "configs/waiting.yaml": WAITING_CONFIG}
    for name, text in files.items():
        workplace.write(f"resources_servers/waiting/{name}", text)
    command = workplace.start(program, "+entrypoint=resources_servers/waiting")
    command.wait_for(line)
    finished = command.end()
    assert (finished.code, finished.err) == (130, "Interrupted.\n")


@pytest.mark.parametrize(
    "words",
    [("ng_pip_list", "+format=json"), ("ng", "env", "packages", "--json"), ("ng_pip_list", "++format=json")],
)
def test_packages_are_listed_as_json(shared_workplace, words):
    folder(shared_workplace, "good", GOOD)
    finished = shared_workplace.run(*words, "+entrypoint=resources_servers/good")
    assert (finished.code, finished.err) == (0, f"resources_servers/good runs with {sys.executable}\n")
    names = {each["name"] for each in orjson.loads(finished.out)}
    assert {"nemo-gym", "pydantic"} <= names


@pytest.mark.parametrize(("format_", "line"), [("columns", "pydantic "), ("freeze", "pydantic==")])
def test_packages_are_listed_as_text(shared_workplace, format_, line):
    folder(shared_workplace, "good", GOOD)
    words = ("env", "packages", "--resources-server", "good", "--format", format_)
    assert f"\n{line}" in shared_workplace.run("ng", *words).out


def test_unknown_format_is_reported(shared_workplace):
    folder(shared_workplace, "good", GOOD)
    finished = shared_workplace.run("ng_pip_list", "+entrypoint=resources_servers/good", "+format=xml")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("Error: format: ")


def test_folders_without_requirements_get_no_environment(shared_workplace):
    finished = shared_workplace.run("ng", "env", "prefetch", shared_workplace.environment())
    assert (finished.code, finished.out) == (0, "0 of 1 server with a separate virtual environment\n")


def test_environment_is_built_and_its_packages_listed(workplace):
    word, wheel = workplace.environment("needy"), write_wheel(workplace.folder)
    workplace.write("resources_servers/needy/requirements.txt", f"tinydep @ {wheel.as_uri()}\n")
    built = workplace.run("ng", "env", "prefetch", word, "+cache_dir=cache")
    if "dns error" in built.err or "error sending request" in built.err:
        pytest.skip("no package registry can be reached")
    python, count = built.out.splitlines()
    assert python.startswith(f"needy: {workplace.folder}/cache/environments/")
    assert (built.code, count) == (0, "1 of 1 server with a separate virtual environment")
    listed = workplace.run("ng_pip_list", "+entrypoint=resources_servers/needy", "+cache_dir=cache", "+format=freeze")
    assert listed.err == f"resources_servers/needy runs with {python.removeprefix('needy: ')}\n"
    assert "\ntinydep==1.0\n" in listed.out


def test_failed_environment_build_is_reported(workplace):
    word = workplace.environment("needy")
    workplace.write(
        "resources_servers/needy/requirements.txt", "tinydep @ file:///nowhere/tinydep-1.0-py3-none-any.whl\n"
    )
    finished = workplace.run("ng", "env", "prefetch", word, "+cache_dir=cache")
    assert (finished.code, finished.out) == (1, "")
    assert "/resources_servers/needy: '" in finished.err


@pytest.mark.slow
def test_dev_test_passes_arguments_to_pytest(workplace):
    finished = workplace.run("ng", "dev", "test", "tests/test_paths.py", "-q", "-p", "no:cacheprovider")
    assert (finished.code, " passed" in finished.out or "[100%]" in finished.out) == (0, True)
    assert workplace.run("ng_dev_test", "tests/none.py").code == 4


def test_reinstall_runs_the_commands_of_make(workplace):
    finished = workplace.run("ng_reinstall", "+dry_run=true")
    assert finished.code == 0
    locked, own = finished.out.splitlines()
    assert locked.endswith("--require-hashes -r requirements.lock -r requirements-dev.lock")
    assert own.endswith("--no-deps --no-build-isolation -e .")
    assert str(Path(sysconfig.get_path("scripts"))) in locked
