"""A server that died restarts on its own port; beyond the limit the run ends with the reason."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from nemo_gym.launcher.warm import WARM_MODULE
from tests.conftest import PATIENCE_S, PROGRESS
from tests.waiting import until

pytestmark = pytest.mark.slow

COUNTED_SERVER = """
import os, pathlib, sys, time
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer

lives = pathlib.Path("lives")
lives.open("a").write("x")
life = len(lives.read_text())
print(f"this is life {life}", flush=True)
# HERE


class Counted(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/pid")
        def pid() -> int:
            time.sleep(0.05)
            return os.getpid()

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
WITHOUT_VERIFY = "from nemo_gym import SimpleResourcesServer\n\n\nclass Broken(SimpleResourcesServer):\n    pass\n"


def at(life, does):
    """Return a server that runs this statement at import, in one of its lives."""
    return COUNTED_SERVER.replace("# HERE", f"if life == {life}:\n    {does}")


def killed(command, name, number=signal.SIGKILL):
    """Kill a server and return its entry in the head server's list, as it was before."""
    server = command.servers[name]
    os.kill(server["pid"], number)
    return server


def test_killed_server_restarts_on_its_port(workplace, get_json):
    command = workplace.start_servers(workplace.environment("counted", COUNTED_SERVER), workplace.environment())
    before = killed(command, "counted")
    # Callers wait during the restart and are not refused.
    assert get_json(f"{before['url']}/pid") != before["pid"]
    process = "counted"
    command.wait_for(f"server '{process}' is up again")
    after = command.servers["counted"]
    assert (after["url"], after["status"], after["restarts"], before["restarts"]) == (before["url"], "success", 1, 0)
    assert after["pid"] == get_json(f"{before['url']}/pid")
    assert after["start_time"] > before["start_time"]
    assert command.servers["plain"]["restarts"] == 0
    first, second = PROGRESS.sub("", command.err).splitlines()
    assert re.fullmatch(
        rf"server '{process}' was ended by SIGKILL; its rollouts under way are lost. It is started again in 0\.\d s "
        r"\(restart 1 of 5\)",
        first,
    )
    assert second == f"server '{process}' is up again (pid {after['pid']})"
    command.wait_for(f"({process}) this is life 2\n")
    status = workplace.run("ng_status").out
    assert re.search(rf"(?m)✓ counted .* pid {after['pid']}  up \d+ s  restarted 1 time  \d+ in flight", status)
    assert command.end().code == 0
    assert workplace.left_over() == []


@pytest.mark.slow
def test_spawned_server_restarts(workplace, get_json):
    config = workplace.environment("counted", COUNTED_SERVER)
    command = workplace.start_servers(config, "+process_start_method=spawn")
    before = killed(command, "counted", signal.SIGTERM)
    said = command.wait_for("is up again")
    assert "server 'counted' was ended by SIGTERM; its rollouts" in said
    assert get_json(f"{before['url']}/pid") == command.servers["counted"]["pid"] != before["pid"]
    assert command.end().code == 0
    assert workplace.left_over() == []


def test_restarted_head_server_knows_all_instances(workplace, get_json):
    command = workplace.start_servers(workplace.environment("counted", COUNTED_SERVER))
    killed(command, "counted")
    command.wait_for("is up again")
    known = command.servers["counted"]
    port = int(command.head.rpartition(":")[2])
    (head,) = (
        process
        for process in psutil.Process(command.pid).children(recursive=True)
        if process.pid != known["pid"] and any(each.laddr.port == port for each in process.net_connections("tcp"))
    )
    head.kill()
    again = command.servers["counted"]
    of_now = {"uptime_seconds": 0, "load": {}}
    assert again | of_now == known | of_now
    assert "server 'head_server' was ended by SIGKILL. It is started again in" in command.err


def test_worker_restarts_alone(workplace, get_json):
    command = workplace.start_servers(workplace.environment("counted", COUNTED_SERVER, "num_workers: 2"))
    server = command.servers["counted"]

    def pids():
        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(get_json, [f"{server['url']}/pid"] * 16))

    seen = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 2 and time.monotonic() < deadline:
        seen |= pids()
    (other,) = seen - {server["pid"]}
    os.kill(other, signal.SIGKILL)
    command.wait_for("server 'counted#2' is up again")
    of_now = {"uptime_seconds": 0, "load": {}}
    again = command.servers["counted"]
    assert again | of_now == server | of_now | {"restarts": 1, "pids": again["pids"]}
    assert (again["pids"][0], other in again["pids"]) == (server["pid"], False)
    assert other not in pids()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_server_that_keeps_dying_ends_the_run(workplace, method):
    config = workplace.environment("counted", COUNTED_SERVER)
    command = workplace.start_servers(config, f"+process_start_method={method}", "+restart_limit=2")

    def again() -> list[str]:
        return re.findall(r"is up again \(pid (\d+)\)\n", command.err)

    os.kill(command.servers["counted"]["pid"], signal.SIGTERM)
    for number in (1, 2):
        until(lambda number=number: len(again()) >= number, lambda: command.err, PATIENCE_S)
        os.kill(int(again()[-1]), signal.SIGTERM)
    finished = command.wait()
    assert finished.code == 1
    *_, message, heading, last = finished.err.splitlines()
    process = "counted"
    assert message == (
        f"Error: server '{process}' was ended by SIGTERM, and the restart_limit of 2 within 10 minutes is reached, "
        "so the others are stopped too."
    )
    assert (heading, last) == (f"The last lines of {process}'s log:", "    this is life 3")
    assert "(restart 2 of 2)" in finished.err
    assert workplace.left_over() == []


@pytest.mark.slow
def test_failed_restart_counts_as_a_death(workplace, get_json):
    command = workplace.start_servers(workplace.environment("counted", at(2, "sys.exit('not today')")))
    before = killed(command, "counted")
    assert get_json(f"{before['url']}/pid") != before["pid"]
    said = command.wait_for("is up again")
    assert "server 'counted' ended with exit code 1 before it was ready again; its" in said
    assert "(restart 2 of 5)" in said
    assert command.servers["counted"]["restarts"] == 2


@pytest.mark.slow
def test_hanging_restart_is_retried(workplace):
    config = workplace.environment("counted", at(2, "time.sleep(300)"))
    # The first start also has this time, and a busy machine needs several seconds.
    command = workplace.start_servers(config, "+ready_timeout_s=10")
    killed(command, "counted")
    said = command.wait_for("is up again")
    server = "server 'counted'"
    assert f"{server} was not ready after 10 s\n{server} was ended by SIGKILL before it was" in said


def test_configuration_error_ends_the_run_at_once(workplace):
    config = workplace.environment("counted", COUNTED_SERVER)
    command = workplace.start_servers(config)
    app = workplace.write("resources_servers/counted/app.py", WITHOUT_VERIFY)
    killed(command, "counted")
    finished = command.wait()
    assert finished.code == 1
    assert finished.err.splitlines()[-1] == f"Error: {app}: Broken must define verify."


@pytest.mark.slow
def test_ctrl_c_before_a_restart_stops_all(workplace):
    command = workplace.start_servers(workplace.environment("counted", at(2, "sys.exit()")), workplace.environment())
    killed(command, "counted")
    command.wait_for("(restart 2 of 5)")
    assert command.end().code == 0
    assert workplace.left_over() == []


def warm_process_of(command):
    (warm,) = (
        process for process in psutil.Process(command.pid).children() if WARM_MODULE in " ".join(process.cmdline())
    )
    return warm


def test_dead_fork_server_is_replaced_with_its_servers(workplace, get_json):
    command = workplace.start_servers(workplace.environment(), workplace.environment("counted", COUNTED_SERVER))
    before = command.servers["counted"]
    for number in (1, 2):
        warm_process_of(command).kill()
        for name in ("plain", "counted", "head_server"):
            up = f"server '{name}' is up again"
            until(lambda up=up, number=number: command.err.count(up) == number, lambda: command.err, PATIENCE_S)
    after = command.servers["counted"]
    assert (after["url"], after["restarts"]) == (before["url"], 2)
    assert get_json(f"{after['url']}/pid") == after["pid"] != before["pid"]
    assert "server 'counted' was ended by SIGKILL; its rollouts under way are lost" in command.err
    assert command.end().code == 0
    assert workplace.left_over() == []


@pytest.mark.slow
def test_dead_fork_server_counts_towards_the_limit(workplace):
    command = workplace.start_servers(workplace.environment(), "+restart_limit=0")
    warm_process_of(command).kill()
    finished = command.wait()
    assert (finished.code, "was ended by SIGKILL, so the others are stopped too" in finished.err) == (1, True)
    assert workplace.left_over() == []


PROGRAM = """
import json, os, signal, sys, time

from omegaconf import DictConfig

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.errors import LaunchError

config = {
    "config_paths": ["resources_servers/counted/configs/counted.yaml"],
    "head_server": {"port": 0},
    "restart_limit": 1,
}
helper = RunHelper()
helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=DictConfig(config)))


def pid():
    return helper._servers.instances[0].pid


first = pid()
os.kill(first, signal.SIGKILL)
while pid() == first:
    helper.poll()
    time.sleep(0.02)
os.kill(pid(), signal.SIGKILL)
try:
    while True:
        helper.poll()
        time.sleep(0.02)
except LaunchError as error:
    print(f"failure: {error}")
finally:
    helper.shutdown()
"""


@pytest.mark.slow
def test_program_sees_only_the_final_failure(workplace):
    workplace.environment("counted", COUNTED_SERVER)
    program = [sys.executable, "-c", PROGRAM]
    finished = subprocess.run(
        program, cwd=workplace.folder, env=workplace.env, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert finished.returncode == 0, finished.stderr.decode()
    failure = finished.stdout.decode().partition("failure: ")[2]
    assert failure.startswith("server 'counted' was ended by SIGKILL, and the restart_limit of 1 within 10 minutes")
    assert workplace.left_over() == []
