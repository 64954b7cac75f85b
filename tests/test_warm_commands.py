"""Warm commands and their servers are seen by other processes as new processes would be."""

import signal
import sys

import psutil

from nemo_gym.launcher.warm import WARM_MODULE
from tests.conftest import PATIENCE_S, SCRIPTS
from tests.waiting import until


def words_of(process):
    return " ".join(process.cmdline())


def test_command_and_servers_look_like_new_processes(workplace):
    config = workplace.environment()
    command = workplace.start_servers(config)
    (fork_server,) = psutil.Process(command.pid).children()
    assert words_of(psutil.Process(command.pid)) == f"{sys.executable} {SCRIPTS}/ng_run +head_server.port=0 {config}"
    assert words_of(fork_server).startswith(f"{sys.executable} -P -m {WARM_MODULE} ")
    servers = fork_server.children()
    assert command.servers["plain"]["pid"] in {each.pid for each in servers}
    found = {each.pid: each for each in workplace.processes()}
    assert found.keys() == {command.pid, fork_server.pid, *(each.pid for each in servers)}
    assert [each.environ()["COLUMNS"] for each in found.values()] == ["200"] * 4
    assert command.end().code == 0
    assert workplace.left_over() == []


def test_killed_command_leaves_no_process(workplace):
    command = workplace.start_servers(workplace.environment())
    assert len(workplace.processes()) == 4
    assert command.end(signal.SIGKILL).code == -signal.SIGKILL
    assert workplace.left_over() == []


def test_abandoned_command_ends(workplace, warm_commands):
    outputs = workplace.folder / "out", workplace.folder / "err"
    argv = [str(SCRIPTS / "ng_run"), "+head_server.port=0", workplace.environment()]
    process = warm_commands.start(*outputs, argv=argv, cwd=str(workplace.folder), env=workplace.env)
    pid = process.pid
    until(lambda: pid in {each.pid for each in workplace.processes()}, within_s=PATIENCE_S)
    del process
    assert workplace.left_over() == []


def test_command_without_servers_leaves_no_process(workplace):
    assert workplace.run("ng", "--help").code == 0
    assert workplace.processes() == []
