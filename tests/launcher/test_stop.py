"""When a run ends in any way, no server and no child process of a server remains."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.error
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from nemo_gym.launcher.warm import WARM_MODULE
from tests.conftest import PATIENCE_S
from tests.waiting import until

pytestmark = pytest.mark.slow

BREEDING_SERVER = """
import asyncio, os, subprocess, time
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer

SLEEP = ["sleep", "300"]


class Breeding(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/breed")
        def breed() -> list[int]:
            forked = os.fork()
            if forked == 0:
                time.sleep(300)
                os._exit(0)
            return [subprocess.Popen(SLEEP).pid, forked]

        @app.get("/breed_apart")
        def breed_apart() -> int:
            return subprocess.Popen(SLEEP, start_new_session=True).pid

        @app.get("/say_something")
        def say_something() -> None:
            print("something", flush=True)

        @app.get("/block")
        async def block() -> None:
            print("blocked", flush=True)
            time.sleep(300)

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
SCRIPTS = Path(sysconfig.get_path("scripts"))


def ending(workplace, command, number):
    command.send(number)
    assert workplace.left_over() == []
    return command.wait()


@pytest.mark.slow
def test_repeated_interrupt_ends_the_run_cleanly(workplace):
    for _ in range(3):
        command = workplace.start_servers(workplace.environment("breeding", BREEDING_SERVER))
        command.send(signal.SIGINT)
        finished = ending(workplace, command, signal.SIGINT)
        assert (finished.code, "Traceback" in finished.err) == (0, False), finished.err


@pytest.mark.parametrize(
    ("method", "number", "code"),
    [
        ("fork", signal.SIGINT, 0),
        pytest.param("fork", signal.SIGTERM, 0, marks=pytest.mark.slow),
        pytest.param("fork", signal.SIGHUP, 0, marks=pytest.mark.slow),
        ("fork", signal.SIGKILL, -9),
        pytest.param("spawn", signal.SIGINT, 0, marks=pytest.mark.slow),
        ("spawn", signal.SIGKILL, -9),
    ],
)
def test_signals_end_servers_and_their_children(workplace, get_json, method, number, code):
    command = workplace.start_servers(
        workplace.environment("breeding", BREEDING_SERVER), f"+process_start_method={method}"
    )
    url = command.servers["breeding"]["url"]
    offspring = get_json(f"{url}/breed")
    assert set(offspring) < {process.pid for process in workplace.processes()}
    finished = ending(workplace, command, number)
    assert finished.code == code
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_children_in_their_own_session_end_too(workplace, get_json, number):
    command = workplace.start_servers(workplace.environment("breeding", BREEDING_SERVER))
    assert psutil.pid_exists(get_json(f"{command.servers['breeding']['url']}/breed_apart"))
    ending(workplace, command, number)


MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: http://127.0.0.1:9/v1
      openai_api_key: none
      openai_model: none
"""


AGENT = """
player:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: plain}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: rows, type: example, jsonl_fpath: rows.jsonl}]
"""


@pytest.mark.parametrize("program", ["ng_run", "ng_e2e_collect_rollouts"])
def test_interrupted_wait_for_an_endpoint_says_so(workplace, program):
    workplace.environment()
    workplace.write("run.yaml", MODEL + AGENT)
    workplace.write("rows.jsonl", '{"responses_create_params": {"input": "hi"}}\n')
    words = ["+config_paths=[run.yaml,resources_servers/plain/configs/plain.yaml]"]
    if program != "ng_run":
        words += ["+split=example", "+output_jsonl_fpath=out.jsonl"]
    command = workplace.start(program, "+head_server.port=0", *words)
    command.wait_for("waiting for the model endpoint")
    finished = ending(workplace, command, signal.SIGINT)
    assert finished.code == 130
    assert finished.err.splitlines()[-1] == "Interrupted during the start. Stopped: policy_model, player, plain."


@pytest.mark.parametrize("is_answered", [False, True])
def test_fork_server_ends_quietly_with_the_launcher(is_answered):
    """This happens on Ctrl-C during the start of the first server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        warm = subprocess.Popen(
            [sys.executable, "-m", WARM_MODULE, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=PIPE
        )
    with ours:
        ours.send(b'{"do": "exit_code", "pid": 1}')
        if is_answered:
            assert select.select([ours], [], [], 30.0)[0]
    assert warm.communicate(timeout=100)[1] == b""
    assert warm.returncode == 0


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_blocked_handler_does_not_delay_the_end(workplace, get_json, method):
    command = workplace.start_servers(
        workplace.environment("breeding", BREEDING_SERVER), f"+process_start_method={method}"
    )
    url = command.servers["breeding"]["url"]

    def ask_and_be_cut_off():
        with pytest.raises((urllib.error.URLError, OSError)):
            get_json(f"{url}/block")

    asking = threading.Thread(target=ask_and_be_cut_off)
    asking.start()
    command.wait_for("(breeding) blocked")
    assert ending(workplace, command, signal.SIGINT).code == 0
    asking.join()


def test_ctrl_c_during_start_ends_the_servers(workplace):
    slow = "import time\nprint('importing', flush=True)\ntime.sleep(300)\n"
    command = workplace.start("ng_run", workplace.environment("slow", slow), "+head_server.port=0")
    command.wait_for("(slow) importing")
    finished = ending(workplace, command, signal.SIGINT)
    assert (finished.code, finished.err) == (130, "Interrupted during the start. Stopped: slow.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_early_signal_ends_the_command_and_its_warm_process(number):
    words = [SCRIPTS / "ng_e2e_collect_rollouts", "+config_paths=[missing.yaml]", "+output_jsonl_fpath=out.jsonl"]
    command = subprocess.Popen(words, stderr=PIPE, text=True)
    children = psutil.Process(command.pid).children
    until(children, within_s=PATIENCE_S)
    (warm,) = children()
    command.send_signal(number)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (130, "Interrupted.\n")
    until(lambda: not warm.is_running(), within_s=PATIENCE_S)


def test_nohup_keeps_a_run_up_without_terminal(workplace, get_json):
    ignoring = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        command = workplace.start_servers(workplace.environment(), is_warm=False)
    finally:
        signal.signal(signal.SIGHUP, ignoring)
    command.send(signal.SIGHUP)
    time.sleep(0.2)
    assert get_json(command.servers["plain"]["url"]) == {"status": "ok"}


def test_closed_output_ends_the_run(workplace, get_json):
    config = workplace.environment("breeding", BREEDING_SERVER)
    program = SCRIPTS / "ng_run"
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [program, config, "+head_server.port=0"], cwd=workplace.folder, env=workplace.env, stdout=writing
    )
    os.close(writing)
    with os.fdopen(reading) as output:
        head = next(line for line in output if line.startswith("head server: ")).split()[2]
    breeding = next(each for each in get_json(f"{head}/server_instances") if each["config_path"] == "breeding")
    get_json(f"{breeding['url']}/say_something")
    assert process.wait(timeout=100) == 0
    assert workplace.left_over() == []


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_server_death_without_restarts_ends_the_run(workplace, get_json, method):
    """The run ends even if a child of the server still has copies of its open files."""
    command = workplace.start_servers(
        workplace.environment("breeding", BREEDING_SERVER),
        workplace.environment(),
        f"+process_start_method={method}",
        "+restart_limit=0",
    )
    breeding = command.servers["breeding"]
    get_json(f"{breeding['url']}/breed")
    os.kill(breeding["pid"], signal.SIGKILL)
    finished = command.wait()
    assert finished.code == 1
    message = "Error: server 'breeding' was ended by SIGKILL, so the others are stopped too."
    assert finished.err.startswith(message)
    assert workplace.left_over() == []
