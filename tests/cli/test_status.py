"""Tests of `ng_status`."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading

import orjson
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(shared_workplace):
    command = shared_workplace.start_servers(
        shared_workplace.environment("first"), shared_workplace.environment("second")
    )
    yield command
    command.end()


def test_each_server_has_a_line(running, shared_workplace):
    finished = shared_workplace.run("ng_status")
    assert (finished.code, finished.err) == (0, "")
    pids = {name: " ".join(map(str, server["pids"])) for name, server in running.servers.items()}
    expected = [
        f"[{number}] ✓ {name} (resources_servers/{name})  {server['url']}  pid {pids[name]}  up "
        for number, (name, server) in enumerate(running.servers.items(), start=1)
    ]
    *lines, count = finished.out.splitlines()
    assert [re.sub(r"\d+ s  0 in flight, loop lag \d+ ms$", "", line) for line in lines] == expected
    assert count == "2 of 2 servers answer"


@pytest.mark.parametrize("words", [("--json",), ("+json=true",), ("++json=true",)])
def test_status_is_printed_as_json(running, shared_workplace, words):
    finished = shared_workplace.run("ng_status", *words)
    assert finished.code == 0
    shown, known = orjson.loads(finished.out), list(running.servers.values())
    changing = {"uptime_seconds": 0, "load": {}}
    assert [each | changing for each in shown] == [each | changing for each in known]
    assert (shown[0]["load"]["in_flight"], shown[0]["load"]["queued"]) == (0, 0)
    assert set(shown[0]) >= {
        "process_name", "server_type", "name", "dir_path", "entrypoint", "host", "port", "url", "pid", "config_path",
        "start_time", "status", "uptime_seconds",
    }  # fmt: skip


def test_runs_of_other_folders_are_offered(workplace):
    """A command in a folder without a run must not pick one of several other folders' runs."""
    runs = {}
    for name in ("one", "two"):
        config = workplace.environment().removeprefix("+config_paths=[").removesuffix("]")
        (workplace.folder / name).mkdir()
        words = ("+head_server.port=0", f"+config_paths=[{workplace.folder / config}]")
        runs[name] = workplace.start("ng_run", *words, within=name, NEMO_GYM_EXTRA_ROOTS=str(workplace.folder))
        runs[name].wait_for("head server: ")
        if name == "one":
            only = workplace.run("ng_status")
            assert (only.code, only.err) == (0, "")
    ports = {name: run.head.rpartition(":")[2] for name, run in runs.items()}
    choices = [f"--head_server.port {ports[name]} (started in {workplace.folder / name})" for name in runs]
    refused = workplace.run("ng_status")
    assert refused == (
        1,
        "",
        f"Error: 2 runs are up, and none of them was started in this folder ({workplace.folder}). Choose one: "
        f"{', '.join(choices)}.\n",
    )
    chosen = workplace.run("ng_status", f"+head_server.port={ports['two']}")
    assert chosen.code == 0
    assert runs["two"].servers["plain"]["url"] in chosen.out


def test_unresponsive_server_is_marked_with_exit_code_1(workplace):
    command = workplace.start_servers(workplace.environment("awake"), workplace.environment("asleep"))
    os.kill(command.servers["asleep"]["pid"], signal.SIGSTOP)
    finished = workplace.run("ng_status")
    awake, asleep, count = finished.out.splitlines()
    assert finished.code == 1
    assert awake.startswith("[1] ✓ awake ")
    assert asleep.startswith("[2] ✗ asleep ")
    assert asleep.endswith("  timeout")
    assert count == "1 of 2 servers answer"


def test_without_run_message_explains_how_to_start(workplace):
    finished = workplace.run("ng_status", "+head_server.port=1")
    assert finished == (
        1,
        "",
        "Error: no servers are running: no head server answers at http://127.0.0.1:1. Start servers with ng_run, or "
        "pass the address of a run: --head_server.host … --head_server.port …\n",
    )


def test_other_server_is_not_taken_for_head_server(workplace):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")

        answering = threading.Thread(target=answer)
        answering.start()
        port = other.getsockname()[1]
        finished = workplace.run("ng_status", f"+head_server.port={port}")
        answering.join()
    assert finished.code == 1
    assert finished.err.startswith(f"Error: the server at http://127.0.0.1:{port} is not a nemo_gym head server. ")
