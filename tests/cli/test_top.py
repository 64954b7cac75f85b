"""Tests of `ng env top`."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import orjson
import pytest
from rich.console import Console

from nemo_gym.calls.loads import ServerLoad
from nemo_gym.cli.tables import console
from nemo_gym.cli.top import table_of
from tests.conftest import PATIENCE_S, SCRIPTS

pytestmark = pytest.mark.slow

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command that runs in a terminal."""

    def __init__(self, workplace, *words, columns=120):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        env = {key: value for key, value in workplace.env.items() if key != "COLUMNS"} | {"TERM": "xterm"}
        self.process = subprocess.Popen(
            [SCRIPTS / "ng", *words], stdin=slave, stdout=slave, stderr=slave, cwd=workplace.folder, env=env,
            start_new_session=True,
        )  # fmt: skip
        self.slave, self.master, self.raw = slave, master, ""
        os.set_blocking(master, False)

    @property
    def shown(self):
        return ESCAPES.sub("", self.raw)

    def read(self):
        try:
            self.raw += os.read(self.master, 1 << 16).decode()
        except BlockingIOError:
            time.sleep(0.02)

    def wait_for(self, pattern):
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            self.read()

    def end(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.read()
        self.read()
        is_echoing = bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)
        os.close(self.slave)
        os.close(self.master)
        return self.process.returncode, is_echoing


@pytest.fixture(scope="module")
def running(shared_workplace):
    command = shared_workplace.start_servers(
        shared_workplace.environment("first"), shared_workplace.environment("second")
    )
    yield command
    command.end()


@pytest.mark.parametrize("words", [(), ("--once",)])
def test_pipe_gets_one_table(running, shared_workplace, words):
    finished = shared_workplace.run("ng", "env", "top", *words)
    assert (finished.code, finished.err) == (0, "")
    heading, *rows = finished.out.splitlines()
    assert heading.split("  ")[0] == "server"
    assert re.sub(r"\d+(\.\d)?", "0", "\n".join(" ".join(row.split()) for row in rows)) == (
        "first environment up 0 0 0 0 0 0 0 0 0\nsecond environment up 0 0 0 0 0 0 0 0 0"
    )


def test_reading_is_printed_as_json(running, shared_workplace):
    finished = shared_workplace.run("ng", "env", "top", "--json")
    first, second = orjson.loads(finished.out)
    assert (first["name"], first["state"], first["problem"]) == ("first", "up", None)
    assert (second["in_flight"], second["errors_per_s"]) == (0, 0.0)
    assert second["memory_mb"] > 10


@pytest.mark.parametrize("quits", [b"q", signal.SIGINT, signal.SIGTERM])
def test_terminal_shows_new_readings_until_quit(running, shared_workplace, quits):
    terminal = Terminal(shared_workplace, "env", "top", "--interval", "0.2")
    terminal.wait_for(r"(?s)2 of 2 servers up.*2 of 2 servers up.*2 of 2 servers up")
    assert "\x1b[?1049h" in terminal.raw
    if isinstance(quits, bytes):
        os.write(terminal.master, quits)
    else:
        terminal.process.send_signal(quits)
    assert terminal.end() == (0, True)
    # The last reading stays on the ordinary screen.
    assert re.search(r"first +environment +up", ESCAPES.sub("", terminal.raw.rpartition("\x1b[?1049l")[2]))


def test_narrow_terminal_shows_the_main_columns(running, shared_workplace):
    terminal = Terminal(shared_workplace, "env", "top", "--once", columns=80)
    assert terminal.end()[0] == 0
    assert terminal.shown.split("\r\n")[0].split() == (
        ["server", "tier", "state", "in", "flight", "queued", "lag", "ms", "CPU", "%", "MiB", "req/s", "errors"]
    )


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (120, []),
        (104, ["refused", "err/s"]),
        (80, ["refused", "err/s", "tier", "MiB", "CPU %"]),
        (60, ["refused", "err/s", "tier", "MiB", "CPU %", "lag ms", "errors"]),
    ],
)
def test_columns_are_left_out_whole(monkeypatch, width, left_out):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    load = ServerLoad(
        name="example_session_state_mgmt", tier="environment", address="http://127.0.0.1:1", state="up", problem=None,
        in_flight=1, queued=0, loop_lag_ms=0.1, cpu_percent=5.0, memory_mb=80.0, requests=1, errors=0, refused=0,
        requests_per_s=1.0, errors_per_s=0.0, kept=0, moved=0,
    )  # fmt: skip
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(table_of([load], width))
    heading = re.split(r"  +", page.getvalue().splitlines()[0].strip())
    numbers = ["in flight", "queued", "lag ms", "CPU %", "MiB", "req/s", "err/s", "errors", "refused"]
    assert heading == [each for each in ("server", "tier", "state", *numbers) if each not in left_out]


def test_end_of_the_run_ends_the_display(workplace):
    command = workplace.start_servers(workplace.environment())
    terminal = Terminal(workplace, "env", "top", "--interval", "0.2")
    terminal.wait_for("1 of 1 server up")
    command.end()
    assert terminal.end() == (0, True)
    assert f"the run at {command.head} has ended" in terminal.shown


def test_server_that_is_down_has_a_row(capsys):
    load = ServerLoad(
        name="asleep", tier="model", address="http://127.0.0.1:1", state="down", problem="does not answer",
        **dict.fromkeys(ServerLoad.model_fields.keys() - {"name", "tier", "address", "state", "problem"}),
    )  # fmt: skip
    console().print(table_of([load], 200))
    _, row, problem = capsys.readouterr().out.splitlines()
    assert row.split() == ["asleep", "model", "down", *["–"] * 9]
    assert problem == "asleep: does not answer"


def test_without_run_message_explains_how_to_start(workplace):
    finished = workplace.run("ng", "env", "top", "+head_server.port=1")
    assert finished.code == 1
    assert finished.err.startswith("Error: no servers are running: no head server answers at http://127.0.0.1:1. ")
