"""The isolation and the resource limits of a bubblewrap sandbox."""

import asyncio
import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import nemo_gym
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxSpec
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.needs_bubblewrap


async def has_groups(provider):
    return (await provider.level()).has_groups


async def test_environment_of_this_process_is_hidden(sandbox):
    os.environ["NEMO_GYM_TEST_SECRET"] = "leaked"
    try:
        assert "leaked" not in (await sandbox.exec("env; cat /proc/*/environ 2>/dev/null")).stdout
    finally:
        del os.environ["NEMO_GYM_TEST_SECRET"]


async def test_outside_files_are_hidden_and_system_is_readonly(sandbox, tmp_path):
    (tmp_path / "secret").write_text("secret")
    for path in (tmp_path / "secret", Path(nemo_gym.__file__), "/etc/shadow", "/proc/1/root/etc/shadow"):
        assert (await sandbox.exec(["cat", str(path)])).return_code != 0
    for path in ("/usr/new", "/etc/new", "/new", "/script.py", "/proc/sys/kernel/core_pattern"):
        assert (await sandbox.exec(["sh", "-c", 'echo > "$1"', "sh", path])).return_code != 0


async def test_sandbox_has_its_own_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
        for host, number in (("127.0.0.1", port), ("192.0.2.1", 80)):
            result = await sandbox.exec(["python3", "-c", connect, host, str(number)])
            assert "Error" in result.stderr
    serve = "python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &"
    await sandbox.exec(serve)
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').status)"
    assert (await sandbox.exec(f'until python3 -c "{ask}" 2>/dev/null; do sleep 0.1; done')).stdout == "200\n"
    with pytest.raises(SandboxError, match="has_network"):
        await sandbox.endpoint(8000)


async def test_endpoint_of_shared_network_is_reachable(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = {"bubblewrap": {"workspaces": str(tmp_path), "has_network": True}}
    serve = f"import socket; s = socket.create_server(('127.0.0.1', {port})); s.accept()[0].sendall(b'hello')"
    async with AsyncSandbox(config, SandboxSpec(ports=[port], entrypoint=["python3", "-c", serve])) as sandbox:
        address = urlsplit((await sandbox.endpoint(port)).endpoint)
        assert await asyncio.to_thread(received, (address.hostname, address.port)) == b"hello"
        with pytest.raises(NotImplementedError, match="only be used by the process"):
            await sandbox.serialize()


def received(address):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection(address, PATIENCE_S) as client:
                return client.recv(5)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


async def test_commands_have_no_capabilities_or_foreign_processes(sandbox):
    status = (await sandbox.exec("grep -E 'CapEff|NoNewPrivs' /proc/self/status; id -u")).stdout.split()
    assert status[1] == "0" * 16
    assert status[3] == "1"
    assert status[4] != "0"
    assert str(os.getpid()) not in (await sandbox.exec("ls /proc")).stdout.split()
    # The first process and the one that watches a command are not accessible.
    assert "Permission denied" in (await sandbox.exec("ls -l /proc/1/fd")).stderr
    assert (await sandbox.exec("kill -9 -1; kill -9 1; echo alive")).stdout in ("alive\n", "")
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_mounting_in_own_namespace_is_denied(sandbox):
    result = await sandbox.exec(["unshare", "-Urm", "mount", "-t", "tmpfs", "-o", "size=24g", "none", "/tmp"])
    assert "Operation not permitted" in result.stderr


async def test_fork_bomb_hits_process_limit(provider):
    async with AsyncSandbox(provider, SandboxSpec(resources={"pids": 16})) as sandbox:
        bomb = "import os, time\nfor n in range(99):\n    if os.fork() == 0: time.sleep(60)"
        assert "BlockingIOError" in (await sandbox.exec(["python3", "-c", bomb])).stderr
        result = await sandbox.exec("f() { f | f & }; f; sleep 60", timeout_s=1)
        assert result.error_type == "timeout"


async def test_memory_is_bounded(provider):
    async with AsyncSandbox(provider, SandboxSpec(resources={"memory_mib": 128})) as sandbox:
        result = await sandbox.exec(["python3", "-c", "x = bytearray(b'x') * 2**30; print(len(x))"])
        assert result.return_code != 0
        assert not result.stdout
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_limited_disk_fills_up(provider):
    async with AsyncSandbox(provider, SandboxSpec(resources={"disk_gib": 4 / 1024})) as sandbox:
        assert (
            "No space left" in (await sandbox.exec("for n in 1 2 3; do head -c 3000000 /dev/zero > $n; done")).stderr
        )


async def test_cpu_limit_is_enforced(provider):
    if not await has_groups(provider):
        pytest.skip("this process may not make control groups")
    async with AsyncSandbox(provider, SandboxSpec(resources={"cpu": 0.1})) as sandbox:
        busy = "import time; b = time.monotonic()\nwhile time.monotonic() - b < 1: pass\nprint(time.process_time())"
        assert float((await sandbox.exec(["python3", "-c", busy])).stdout) < 0.5
