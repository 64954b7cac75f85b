"""What tests of whole commands share: a folder of environments, and the commands run in it as their user would."""

from __future__ import annotations

import gc
import os
import re
import select
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

from nemo_gym.config.access import is_loopback

PATIENCE_S = 30.0
"""How long a busy machine may take for what is otherwise a matter of one second."""
SCRIPTS = Path(sysconfig.get_path("scripts"))
SEARCHES = 10_000, 10, 5
"""After how many new objects garbage is searched for, and every which time among the older ones too."""
WARM_COMMANDS = Path(__file__).with_name("warm_commands.py")
PLAIN_SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Plain(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def pytest_collection_finish() -> None:
    """Set aside what is imported and collected by now: it stays, and there is much of it to search for garbage."""
    gc.collect()
    gc.freeze()
    # A full search comes once what is new is a quarter of what the last one found: that is to be none of this.
    gc.collect()
    gc.set_threshold(*SEARCHES)


@pytest.fixture(scope="module", autouse=True)
def garbage_is_searched_for() -> Iterator[None]:
    """Whatever a launcher that a test has started in this process thinks of the matter."""
    yield
    gc.set_threshold(*SEARCHES)


class Finished(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


class Command:
    """A command under way."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
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
        """The address of the head server, once the servers are ready."""
        return re.search(r"head server: (http://[\d.:]+)", self.out).group(1)  # type: ignore[union-attr]

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        """What the head server tells of each server, by name."""
        return {each["config_path"]: each for each in get(f"{self.head}/server_instances")}

    def wait_for(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Everything printed so far, once a whole line has `text` in it."""
        deadline = time.monotonic() + timeout_s
        while not self._has_printed(text):
            has_ended = self.process.poll() is not None
            if (has_ended and not self._has_printed(text)) or time.monotonic() > deadline:
                raise AssertionError(f"'{text}' was not printed, but:\n{self.out}\n{self.err}")
            time.sleep(0.02)
        return self.out + self.err

    def _has_printed(self, text: str) -> bool:
        # A line and its end may be written apart.
        parts = (printed.partition(text) for printed in (self.out, self.err))
        return any(found and "\n" in found + after for _, found, after in parts)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGINT, timeout_s: float = PATIENCE_S) -> Finished:
        """Signal the command and wait for its end."""
        self.send(number)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = PATIENCE_S) -> Finished:
        return Finished(self.process.wait(timeout_s), self.out, self.err)


class WarmCommands:
    """Forks of one process, which has imported other people's packages: most of a short command's time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, WARM_COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def run(self, timeout_s: float, **command: Any) -> int:
        """Run a command to its end; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")
        pid = self._told(PATIENCE_S)["pid"]
        try:
            return self._told(timeout_s)["code"]
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            self._told(PATIENCE_S)
            raise

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def _told(self, timeout_s: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(str(WARM_COMMANDS), timeout_s)
        return orjson.loads(self._process.stdout.readline())


class Workplace:
    """A folder outside the repository in which a user keeps environments and runs commands."""

    def __init__(self, folder: Path, runtime: Path, warm: WarmCommands) -> None:
        self.folder = folder
        self._warm = warm
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("NEMO_GYM")}
        # Runs find each other by this folder; its name also marks every process that was started from here.
        self.env |= {"XDG_RUNTIME_DIR": str(runtime), "COLUMNS": "200", "TERM": "dumb"}
        # The tests of folders need one plugin; importing all that are installed takes pytest seconds.
        self.env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}
        self._started = 0

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def environment(self, name: str = "plain", source: str = PLAIN_SERVER, settings: str = "") -> str:
        """Write the folder of a resources server; the word that starts it. `settings` are lines of its block."""
        self.write(f"resources_servers/{name}/app.py", source)
        lines = "".join(f"\n      {line}" for line in settings.splitlines())
        block = f"{name}:\n  resources_servers:\n    {name}:\n      entrypoint: app.py{lines}\n"
        path = f"resources_servers/{name}/configs/{name}.yaml"
        self.write(path, block)
        return f"+config_paths=[{path}]"

    def run(self, program: str, *words: str, timeout_s: float = PATIENCE_S, **env: str) -> Finished:
        """Run a command to its end."""
        # Of these variables the interpreter hears when it starts, and at no other time.
        if not program.startswith("ng") or any(name.startswith("PYTHON") for name in env):
            return self.start(program, *words, **env).wait(timeout_s)
        out, err = self._outputs(program)
        argv = [str(SCRIPTS / program), *words]
        assert Path(argv[0]).is_file(), f"there is no command {program}"
        code = self._warm.run(
            timeout_s, argv=argv, cwd=str(self.folder), env=self.env | env, out=str(out), err=str(err)
        )
        return Finished(code, out.read_text(), err.read_text())

    def start(self, program: str, *words: str, **env: str) -> Command:
        """Start a command and let it run."""
        outputs = self._outputs(program)
        with outputs[0].open("wb") as out, outputs[1].open("wb") as err:
            process = subprocess.Popen(
                [SCRIPTS / program, *words], cwd=self.folder, env=self.env | env, stdout=out, stderr=err
            )
        return Command(process, *outputs)

    def _outputs(self, program: str) -> tuple[Path, Path]:
        self._started += 1
        outputs = Path(self.env["XDG_RUNTIME_DIR"]) / f"{self._started}_{program}"
        return outputs.with_suffix(".out"), outputs.with_suffix(".err")

    def start_servers(self, *words: str, **env: str) -> Command:
        """`ng_run` on a free head port, once it is ready."""
        command = self.start("ng_run", "+head_server.port=0", *words, **env)
        command.wait_for("head server: ")
        return command

    def processes(self) -> list[psutil.Process]:
        """Every process that was started from here and has not ended."""
        mine = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                runtime = process.environ().get("XDG_RUNTIME_DIR")
                if runtime == self.env["XDG_RUNTIME_DIR"] and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
        return mine

    def left_over(self, within_s: float) -> list[psutil.Process]:
        """The processes that are still there after this time; empty as soon as there is none."""
        deadline = time.monotonic() + within_s
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left


def get(url: str, timeout_s: float = PATIENCE_S) -> Any:
    """The JSON that a server answers."""
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
def warm_commands() -> Iterator[WarmCommands]:
    commands = WarmCommands()
    yield commands
    commands.close()


@pytest.fixture
def workplace(tmp_path: Path, warm_commands: WarmCommands) -> Iterator[Workplace]:
    with _opened(tmp_path, warm_commands) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_workplace(tmp_path_factory: pytest.TempPathFactory, warm_commands: WarmCommands) -> Iterator[Workplace]:
    """One for all tests of a module, which leave it as they found it."""
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
