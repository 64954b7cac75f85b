"""Test setup for whole commands: a folder with environments, and commands run in it as by a user."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psutil
import pytest

from nemo_gym.config.hosts import is_loopback
from tests.warm_command import answer, begin, write_scripts

PATIENCE_S = 150.0
"""The timeout for operations that take about a second on an idle machine. It exceeds the
120 s that servers have to start."""
PROGRESS = re.compile(
    r"^(waiting for .* \(\d+ of \d+ s\)|\S+: waiting up to \d+ s for process .*|checking \d+ of \d+: .*|"
    r"port 11000 is taken, perhaps by another run).*\n",
    re.MULTILINE,
)
"""Lines that only a busy machine prints, or one on which another run is up."""
SCRIPTS = Path(sysconfig.get_path("scripts"))
ROOM_BYTES = 32_000
"""The room for the command line and for the environment of a warm command."""
GC_THRESHOLDS = 10_000, 10, 5
"""Thresholds for `gc.set_threshold` that collect garbage less often than the default."""
WARM_COMMANDS = Path(__file__).with_name("warm_commands.py")
PLAIN_SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Plain(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
AGENT = """
plain_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {server}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets: [{{name: rows, type: example, jsonl_fpath: rows.jsonl}}]
"""


def pytest_collection_finish() -> None:
    """Exclude the modules and tests loaded so far from garbage collection: they are many, and they stay."""
    gc.collect()
    gc.freeze()
    # Collect once more, because the next full collection depends on the number of objects found by the last one.
    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)


@pytest.fixture(scope="module", autouse=True)
def restore_gc_thresholds() -> Iterator[None]:
    """Undo changes by launchers that tests start in this process."""
    yield
    gc.set_threshold(*GC_THRESHOLDS)


class Finished(NamedTuple):
    """The result of a finished command."""

    code: int
    out: str
    err: str


class Command:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes] | WarmProcess, out: Path, err: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def head(self) -> str:
        """The head server's address, available when the servers are ready."""
        return re.search(r"head server: (http://[\d.:]+)", self.out).group(1)  # type: ignore[union-attr]

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        """The head server's entry for each server, by name."""
        return {each["config_path"]: each for each in get(f"{self.head}/server_instances")}

    def wait_for(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a complete line that contains `text`, and return all output so far."""
        deadline = time.monotonic() + timeout_s
        while not self._has_printed(text):
            has_ended = self.process.poll() is not None
            if (has_ended and not self._has_printed(text)) or time.monotonic() > deadline:
                raise AssertionError(f"'{text}' was not printed. Output:\n{self.out}\n{self.err}")
            time.sleep(0.02)
        return self.out + self.err

    def _has_printed(self, text: str) -> bool:
        # A line and its newline may arrive separately.
        parts = (printed.partition(text) for printed in (self.out, self.err))
        return any(found and "\n" in found + after for _, found, after in parts)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGINT, timeout_s: float = PATIENCE_S) -> Finished:
        """Signal the command and wait for its end."""
        self.send(number)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = PATIENCE_S) -> Finished:
        return Finished(self.process.wait(timeout_s), self.out, PROGRESS.sub("", self.err))


class WarmProcess:
    """A process of `WarmCommands`, with methods of `subprocess.Popen`. It ends at the latest with this object."""

    def __init__(self, service: socket.socket, argv: list[str]) -> None:
        self._service, self._argv = service, argv
        self.pid = self._answer("pid", PATIENCE_S)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        if self.returncode is None:
            self.returncode = self._answer("code", timeout_s)
            self._service.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _answer(self, name: str, timeout_s: float) -> int:
        self._service.settimeout(timeout_s)
        try:
            return answer(self._service, name)
        except (BlockingIOError, TimeoutError) as late:
            raise subprocess.TimeoutExpired(self._argv, timeout_s) from late


class WarmCommands:
    """Run commands as forks of one process that has already imported what they need.

    `scripts` is a folder with a script for each command, for tests that run them in a shell.
    """

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "socket")
        self.scripts = folder / "scripts"
        self.scripts.mkdir()
        write_scripts(
            str(self.scripts),
            [str(path) for name in ("ng*", "gym", "nemo_gym*") for path in SCRIPTS.glob(name)],
            self.address,
        )
        room = "x" * ROOM_BYTES
        self._process = subprocess.Popen(
            [sys.executable, WARM_COMMANDS, self.address, room], env=os.environ | {"ROOM": room},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"{WARM_COMMANDS} has ended with exit code {self._process.wait()}")

    def start(self, out: Path, err: Path, **command: Any) -> WarmProcess:
        with open(os.devnull, "rb") as nothing, out.open("wb") as out_file, err.open("wb") as err_file:
            streams = [each.fileno() for each in (nothing, out_file, err_file)]
            return WarmProcess(begin(self.address, streams, **command), command["argv"])

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


class Workplace:
    """A folder outside the repository in which a user keeps environments and runs commands."""

    def __init__(self, folder: Path, runtime: Path, warm: WarmCommands) -> None:
        self.folder = folder
        self.warm = warm
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("NEMO_GYM")}
        # Runs find each other through this folder; its path also identifies the processes of this workplace.
        self.env |= {"XDG_RUNTIME_DIR": str(runtime), "COLUMNS": "200", "TERM": "dumb"}
        # Each test has indexes of its own.
        self.env["XDG_CACHE_HOME"] = str(runtime / "cache")
        # Tests of server folders need one plugin; importing all installed ones takes seconds.
        self.env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}
        self._started = 0
        self._running: list[WarmProcess] = []

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def environment(self, name: str = "plain", source: str = PLAIN_SERVER, settings: str = "") -> str:
        """Write the folder of a resources server with `settings` in its block; return the argument that selects it."""
        self.write(f"resources_servers/{name}/app.py", source)
        lines = "".join(f"\n      {line}" for line in settings.splitlines())
        block = f"{name}:\n  resources_servers:\n    {name}:\n      entrypoint: app.py{lines}\n"
        path = f"resources_servers/{name}/configs/{name}.yaml"
        self.write(path, block)
        return f"+config_paths=[{path}]"

    def agent(self, server: str = "plain") -> str:
        """Write the config of a `plain_agent` of this resources server, with `rows.jsonl` as its examples.

        Return the config's path.
        """
        self.write("agent.yaml", AGENT.format(server=server))
        return "agent.yaml"

    def run(self, program: str, *words: str, timeout_s: float = PATIENCE_S, **env: str) -> Finished:
        """Run a command and return its result."""
        return self.start(program, *words, **env).wait(timeout_s)

    def start(self, program: str, *words: str, within: str = "", is_warm: bool = True, **env: str) -> Command:
        """Start a command in the background, in the folder or in a folder within it.

        A command of the project is a fork of a process that has imported what it needs, unless `is_warm` is False.
        """
        outputs = self._outputs(program)
        argv, folder, variables = [str(SCRIPTS / program), *words], self.folder / within, self.env | env
        # The interpreter reads PYTHON* variables only at its start, so a fork would ignore them.
        if is_warm and program.startswith("ng") and not any(name.startswith("PYTHON") for name in env):
            assert Path(argv[0]).is_file(), f"the command {program} is not installed"
            process = self.warm.start(*outputs, argv=argv, cwd=str(folder), env=variables)
            self._running.append(process)
            return Command(process, *outputs)
        with outputs[0].open("wb") as out, outputs[1].open("wb") as err:
            cold = subprocess.Popen(argv, cwd=folder, env=variables, stdout=out, stderr=err)
        return Command(cold, *outputs)

    def _outputs(self, program: str) -> tuple[Path, Path]:
        self._started += 1
        outputs = Path(self.env["XDG_RUNTIME_DIR"]) / f"{self._started}_{program}"
        return outputs.with_suffix(".out"), outputs.with_suffix(".err")

    def start_servers(self, *words: str, is_warm: bool = True, **env: str) -> Command:
        """Start `ng_run` on a free head port and wait until it is ready."""
        command = self.start("ng_run", "+head_server.port=0", *words, is_warm=is_warm, **env)
        command.wait_for("head server: ")
        return command

    def processes(self) -> list[psutil.Process]:
        """Return the live processes started from this workplace."""
        mine = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                runtime = process.environ().get("XDG_RUNTIME_DIR")
                if runtime == self.env["XDG_RUNTIME_DIR"] and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
        return mine

    def left_over(self, within_s: float = PATIENCE_S) -> list[psutil.Process]:
        """Wait until all processes have ended, and return those still alive after this time."""
        deadline = time.monotonic() + within_s
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left


def get(url: str, timeout_s: float = PATIENCE_S) -> Any:
    """Return the JSON of a GET request."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=timeout_s) as answer:
        return orjson.loads(answer.read())


@contextmanager
def _opened(folder: Path, warm: WarmCommands) -> Iterator[Workplace]:
    home, runtime = folder / "home", folder / "runtime"
    home.mkdir()
    runtime.mkdir()
    workplace = Workplace(home, runtime, warm)
    yield workplace
    for process in workplace.processes():
        with suppress(psutil.Error):
            process.kill()


@pytest.fixture(scope="session")
def warm_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCommands]:
    commands = WarmCommands(tmp_path_factory.mktemp("warm"))
    yield commands
    commands.close()


@pytest.fixture
def workplace(tmp_path: Path, warm_commands: WarmCommands) -> Iterator[Workplace]:
    with _opened(tmp_path, warm_commands) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_workplace(tmp_path_factory: pytest.TempPathFactory, warm_commands: WarmCommands) -> Iterator[Workplace]:
    """Yield a workplace shared by a module's tests, which must leave it unchanged."""
    with _opened(tmp_path_factory.mktemp("workplace"), warm_commands) as opened:
        yield opened


@pytest.fixture(scope="session")
def node_address() -> str | None:
    """Return an address of this machine that other machines use, or None if it has only loopback."""
    for interface in psutil.net_if_addrs().values():
        for address in interface:
            if address.family == socket.AF_INET and not is_loopback(address.address):
                return address.address
    return None


@pytest.fixture(scope="session")
def get_json() -> Any:
    return get


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class SmallDisk:
    """A file system in memory, whose files take whole pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, pages: int) -> None:
        size = f"remount,size={pages * PAGE_BYTES}"
        subprocess.run(["mount", "-o", size, self.folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Yield a file system of one page."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PAGE_BYTES}", "tmpfs", folder], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def full_disk(small_disk: SmallDisk) -> Path:
    """Return the folder of a file system without free space."""
    (small_disk.folder / "filler").write_bytes(bytes(PAGE_BYTES))
    return small_disk.folder
