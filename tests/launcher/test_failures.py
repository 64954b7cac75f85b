"""A server that cannot start ends the run, which reports the reason."""

from __future__ import annotations

import signal
import time

import pytest

from tests.conftest import PATIENCE_S
from tests.each_case import each_case

pytestmark = pytest.mark.slow

HEAD = "+head_server.port=0"
CLASS = """
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class BrokenConfig(BaseResourcesServerConfig):
    difficulty: int
    shuffle: bool = False


class Broken(SimpleResourcesServer):
    config: BrokenConfig

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
FAILS_WHEN_BUILT = CLASS + "\n    def model_post_init(self, context):\n        raise RuntimeError('no dice')\n"
KILLED = " If memory ran out, which dmesg shows, use fewer replicas or workers, or load less data."
FORGETS_BASE = "class Broken:\n    pass\n\n\nif __name__ == '__main__':\n    Broken.run_webserver()\n"
FORGETS_VERIFY = "from nemo_gym import SimpleResourcesServer\n\n\nclass Broken(SimpleResourcesServer):\n    pass\n"


def launched(workplace, source, settings="difficulty: 1"):
    """Run this server together with a working one, and return the finished command."""
    broken = workplace.environment("broken", source, settings)
    finished = workplace.run("ng_run", workplace.environment(), broken, HEAD)
    assert finished.code == 1
    assert workplace.left_over() == []
    assert "nemo_gym/cli" not in finished.err
    return finished


@pytest.mark.parametrize(
    ("source", "how", "last_line"),
    [
        ("print('so far so good')\n1 / 0\n", "ended with exit code 1", "ZeroDivisionError: division by zero"),
        (FAILS_WHEN_BUILT, "ended with exit code 1", "RuntimeError: no dice"),
        ("print('a last word', flush=True)\nimport os\nos._exit(7)\n", "ended with exit code 7", "a last word"),
        pytest.param(
            "import sys\nsys.exit('I will not')\n", "ended with exit code 1", "I will not", marks=pytest.mark.slow
        ),
        pytest.param(
            "print('leaving')\nimport sys\nsys.exit()\n", "ended with exit code 0", "leaving", marks=pytest.mark.slow
        ),
        ("print('k', flush=True)\nimport os\nos.kill(os.getpid(), 9)\n", "was ended by SIGKILL", "k"),
        ("def broken(:\n", "ended with exit code 1", "SyntaxError: invalid syntax"),
    ],
)
def test_failed_start_shows_the_last_log_lines(workplace, source, how, last_line):
    said = launched(workplace, source).err.splitlines()
    process = "broken"
    advice = KILLED if "SIGKILL" in how else ""
    assert said[0] == f"Error: server '{process}' {how} before it was ready.{advice}"
    assert said[1] == f"The last lines of {process}'s log:"
    assert said[-1] == f"    {last_line}"


def test_traceback_begins_in_the_authors_file(workplace):
    said = launched(workplace, FAILS_WHEN_BUILT).err.splitlines()
    assert said[2] == "    Traceback (most recent call last):"
    assert said[3].startswith(f'      File "{workplace.folder}/resources_servers/broken/app.py", line ')


@pytest.mark.parametrize("requirements", ["", "no_such_package\n"])
def test_missing_package_is_reported_with_advice(workplace, requirements):
    if requirements:
        workplace.write("resources_servers/broken/requirements.txt", requirements)
    said = launched(workplace, "import os\nimport no_such_package\n").err
    app = workplace.folder / "resources_servers/broken/app.py"
    assert f"Error: {app}:2: No module named 'no_such_package'. Install the package that provides it, or" in said
    assert ("--auto-install gives the folder its own virtual environment" in said) is bool(requirements)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "no server class is defined here. Derive one from SimpleResourcesServer."),
        (
            CLASS + CLASS.replace("Broken", "Other"),
            "several server classes are defined here (Broken, Other). At the end of the file, start the class to "
            "serve: if __name__ == '__main__': Other.run_webserver()",
        ),
        (FORGETS_VERIFY, "Broken must define verify."),
        (FORGETS_BASE, "Broken must be derived from SimpleResourcesServer."),
    ],
)
def test_file_without_one_complete_server_is_reported(workplace, source, message):
    config = workplace.environment("broken", source, "difficulty: 1")
    finished = workplace.run("ng_validate", config)
    assert finished.code == 1
    assert finished.err == f"Error: {workplace.folder}/resources_servers/broken/app.py: {message}\n"


@each_case(
    ("method", "advice"),
    [
        ("async def look(place: str) -> str:", "look of Broken lacks self. Begin it with: def look(self, place)"),
        ("def look() -> str:", "look of Broken lacks self. Begin it with: def look(self)"),
        (
            "async def close(body):",
            "close of Broken lacks self. Begin it with: def close(self, body)",
        ),
    ],
)
def test_method_without_self_is_reported_with_its_line(workplace, method, advice):
    config = workplace.environment("broken", f"{CLASS}\n    {method}\n        return ''\n", "difficulty: 1")
    finished = workplace.run("ng_validate", config)
    assert finished.code == 1
    line = CLASS.count("\n") + 2
    app = f"{workplace.folder}/resources_servers/broken/app.py"
    assert finished.err == f"Error: {app}:{line}: the method {advice}\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "dificulty: 3",
            "3: broken.resources_servers.broken.difficulty: it is missing; is 'dificulty' a typo for it?",
        ),
        ("", "3: broken.resources_servers.broken.difficulty: it is missing; add `difficulty: …`."),
        (
            "difficulty: hard",
            "5: broken.resources_servers.broken.difficulty: it must be a valid integer, but is 'hard'.",
        ),
        (
            "difficulty: 3\nshufle: true",
            "6: broken.resources_servers.broken.shufle: unknown setting. Did you mean 'shuffle'?",
        ),
    ],
)
def test_invalid_server_setting_reports_file_line_and_key(workplace, settings, message):
    finished = workplace.run("ng_validate", workplace.environment("broken", CLASS, settings))
    assert finished.code == 1
    assert finished.err == f"Error: resources_servers/broken/configs/broken.yaml:{message}\n"


def test_invalid_server_setting_is_reported_once(workplace):
    finished = launched(workplace, CLASS, "difficulty: hard")
    assert (finished.out + finished.err).count("it must be a valid integer") == 1
    assert finished.err.startswith("Error: resources_servers/broken/configs/broken.yaml:5: ")


def test_validating_reports_mistakes_of_all_servers(workplace):
    wrong = [workplace.environment(name, CLASS, "difficulty: hard") for name in ("first", "second")]
    finished = workplace.run("ng_validate", *wrong)
    assert finished.code == 1
    assert [line.partition(".resources_servers")[0] for line in finished.err.splitlines()] == [
        "Error: resources_servers/first/configs/first.yaml:5: first",
        "resources_servers/second/configs/second.yaml:5: second",
    ]


def test_start_timeout_shows_the_servers_log(workplace):
    source = "import time\nprint('loading', flush=True)\ntime.sleep(300)\n"
    config = workplace.environment("slow", source)
    started_at = time.monotonic()
    # On a busy machine, the other server needs some seconds to be ready.
    finished = workplace.run("ng_run", workplace.environment(), config, HEAD, "+ready_timeout_s=5")
    assert 5 < time.monotonic() - started_at < PATIENCE_S
    assert finished.code == 1
    process = "slow"
    assert finished.err == (
        f"Error: servers are not ready after 5 s: {process}. --ready-timeout-s … gives servers longer to start.\n"
        f"The last lines of {process}'s log:\n"
        "    loading\n"
    )
    assert workplace.left_over() == []


@pytest.mark.slow
def test_slow_start_names_the_servers_awaited(workplace):
    source = "import time\ntime.sleep(300)\n"
    command = workplace.start("ng_run", workplace.environment(), workplace.environment("slow", source), HEAD)
    assert "waiting for slow (5 of 120 s)\n" in command.wait_for("waiting for")
    command.end(signal.SIGINT)
