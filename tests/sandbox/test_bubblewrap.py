"""Sandboxes of bubblewrap: what is kept out, what is kept in, and what is left when they end."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import uvloop

import nemo_gym
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, SandboxSpec, create_provider
from nemo_gym.sandbox.providers.bubblewrap import BubblewrapProvider
from nemo_gym.sandbox.providers.bubblewrap.folders import PREFIX

PATIENCE_S = 30.0
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")


@pytest.fixture
async def provider(tmp_path):
    provider = BubblewrapProvider(workspaces=str(tmp_path))
    yield provider
    await provider.aclose()
    assert not list(tmp_path.glob(f"{PREFIX}*")), "workspaces are left"


@pytest.fixture
async def sandbox(provider):
    async with AsyncSandbox(provider) as sandbox:
        yield sandbox


async def ran(sandbox, command, **how):
    result = await sandbox.exec(command, **how)
    return result.return_code, result.stdout, result.stderr


async def has_groups(provider):
    return (await provider.level()).has_groups


async def test_a_command_line_and_a_program_with_arguments_both_run(sandbox):
    assert await ran(sandbox, "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert await ran(sandbox, ["printf", "%s|", "a b", "$HOME"]) == (0, "a b|$HOME|", "")
    assert await ran(sandbox, "[[ bash == b* ]] && echo yes") == (0, "yes\n", "")


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [(["nope"], 127, "nope: "), (["/etc/passwd"], 126, "/etc/passwd: "), ("kill -9 $$", 137, "")],
)
async def test_what_cannot_be_run_and_what_is_killed_ends_as_in_a_shell(sandbox, command, code, told):
    result = await sandbox.exec(command)
    assert (result.return_code, result.error_type) == (code, None)
    assert result.stderr.startswith(told)


async def test_a_folder_that_is_not_there_is_named(sandbox):
    assert (await ran(sandbox, "true", cwd="nowhere"))[2] == "/workspace/nowhere: No such file or directory\n"


async def test_the_workspace_and_the_files_in_it_last_from_command_to_command(sandbox):
    await sandbox.exec("mkdir -p a && echo kept > a/file && echo scratch > /tmp/file")
    assert await ran(sandbox, "cat file /tmp/file", cwd="a") == (0, "kept\nscratch\n", "")


async def test_the_spec_gives_variables_files_and_the_place_to_work_in(provider, tmp_path):
    local = tmp_path / "local.txt"
    local.write_text("local")
    spec = SandboxSpec(
        workdir="/home/me/task",
        env={"COLOUR": "red", "SHAPE": "round"},
        files={"a/text": "text", "bytes": b"\x00\xff", "/tmp/local": local},
    )
    async with AsyncSandbox(provider, spec) as sandbox:
        assert (await sandbox.exec("pwd; echo $COLOUR $SHAPE", env={"SHAPE": "square"})).stdout == (
            "/home/me/task\nred square\n"
        )
        assert (await sandbox.exec("cat a/text /tmp/local; od -An -tx1 bytes")).stdout == "textlocal 00 ff\n"


async def test_nothing_of_this_process_is_in_the_environment(sandbox):
    os.environ["NEMO_GYM_TEST_SECRET"] = "told"
    try:
        assert "told" not in (await sandbox.exec("env; cat /proc/*/environ 2>/dev/null")).stdout
    finally:
        del os.environ["NEMO_GYM_TEST_SECRET"]


async def test_no_file_outside_is_seen_and_the_system_is_read_only(sandbox, tmp_path):
    (tmp_path / "secret").write_text("secret")
    for path in (tmp_path / "secret", Path(nemo_gym.__file__), "/etc/shadow", "/proc/1/root/etc/shadow"):
        assert (await sandbox.exec(["cat", str(path)])).return_code != 0
    for path in ("/usr/new", "/etc/new", "/new", "/script.py", "/proc/sys/kernel/core_pattern"):
        assert (await sandbox.exec(["sh", "-c", 'echo > "$1"', "sh", path])).return_code != 0


async def test_there_is_no_network_but_its_own(sandbox):
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


async def test_commands_have_no_rights_and_see_no_process_of_this_machine(sandbox):
    told = (await sandbox.exec("grep -E 'CapEff|NoNewPrivs' /proc/self/status; id -u")).stdout.split()
    assert told[1] == "0" * 16
    assert told[3] == "1"
    assert told[4] != "0"
    assert str(os.getpid()) not in (await sandbox.exec("ls /proc")).stdout.split()
    # The first process and the one that watches a command are out of reach.
    assert "Permission denied" in (await sandbox.exec("ls -l /proc/1/fd")).stderr
    assert (await sandbox.exec("kill -9 -1; kill -9 1; echo alive")).stdout in ("alive\n", "")
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_a_fork_bomb_meets_the_limit_of_processes(provider):
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


async def test_a_bounded_disk_fills_up(provider):
    async with AsyncSandbox(provider, SandboxSpec(resources={"disk_gib": 4 / 1024})) as sandbox:
        assert (
            "No space left" in (await sandbox.exec("for n in 1 2 3; do head -c 3000000 /dev/zero > $n; done")).stderr
        )


async def test_processors_are_shared_out(provider):
    if not await has_groups(provider):
        pytest.skip("this process may not make control groups")
    async with AsyncSandbox(provider, SandboxSpec(resources={"cpu": 0.1})) as sandbox:
        busy = "import time; b = time.monotonic()\nwhile time.monotonic() - b < 1: pass\nprint(time.process_time())"
        assert float((await sandbox.exec(["python3", "-c", busy])).stdout) < 0.5


async def test_long_outputs_lose_their_middle(tmp_path):
    async with AsyncSandbox({"bubblewrap": {"output_bytes": 100, "workspaces": str(tmp_path)}}) as sandbox:
        result = await sandbox.exec("echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo end")
    assert result.stdout.startswith("begin\n")
    assert result.stdout.endswith("x" * 40 + "end\n")
    assert "[… 999910 bytes left out …]" in result.stdout


async def test_a_timeout_ends_all_that_the_command_started_and_nothing_else(sandbox):
    await sandbox.exec("sleep 111 &")
    began = time.monotonic()
    result = await sandbox.exec("setsid sleep 222 & (sleep 333; :) & echo so far; sleep 444", timeout_s=0.5)
    assert time.monotonic() - began < 10
    assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "so far\n")
    left = (await sandbox.exec("ps -eo args")).stdout
    assert "sleep 111" in left
    assert not [number for number in ("222", "333", "444") if f"sleep {number}" in left]


async def test_timeout_is_another_name_of_timeout_s(sandbox):
    assert (await sandbox.exec("sleep 60", timeout=0.2)).error_type == "timeout"


async def test_a_command_that_is_given_up_is_ended(sandbox):
    task = asyncio.create_task(sandbox.exec("sleep 555"))
    await until(lambda: lists(sandbox, "sleep 555"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: lists(sandbox, "sleep 555", not_any_more=True))


async def lists(sandbox, command, *, not_any_more=False):
    return (command in (await sandbox.exec(["ps", "-eo", "args"])).stdout) != not_any_more


async def until(has_come):
    deadline = time.monotonic() + PATIENCE_S
    while not await has_come():
        assert time.monotonic() < deadline, "it has not come to that"
        await asyncio.sleep(0.05)


async def test_what_runs_in_the_background_may_go_on_writing_and_ends_with_the_sandbox(provider):
    async with AsyncSandbox(provider) as sandbox:
        began = time.monotonic()
        await sandbox.exec("(for n in 1 2 3 4 5 6; do echo $n; sleep 0.1; done; touch written; sleep 600) & :")
        assert time.monotonic() - began < PATIENCE_S
        await until(lambda: succeeds(sandbox, "test -e written"))
        marker = f"sleep {600 + os.getpid()}.5"
        await sandbox.exec(f"setsid {marker} >/dev/null 2>&1 &")
        assert marker in processes()
    assert marker not in processes()


async def succeeds(sandbox, command):
    return (await sandbox.exec(command)).return_code == 0


def processes():
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


async def test_the_entrypoint_runs_from_the_start_on(provider):
    async with AsyncSandbox(provider, SandboxSpec(entrypoint=["sh", "-c", "touch started; sleep 600"])) as sandbox:
        await until(lambda: succeeds(sandbox, "test -e started"))


async def test_a_sandbox_ends_when_its_time_is_over(provider):
    async with AsyncSandbox(provider, SandboxSpec(ttl_s=1)) as sandbox:
        result = await sandbox.exec("sleep 60")
        assert (result.error_type, result.return_code) == ("sandbox", -1)
        await until(lambda: is_stopped(sandbox))
        assert (await sandbox.exec("true")).error_type == "sandbox"


async def is_stopped(sandbox):
    return await sandbox.status() == "stopped"


async def test_files_go_in_and_come_out(sandbox, tmp_path):
    given = tmp_path / "given"
    given.write_bytes(os.urandom(3_000_000))
    given.chmod(0o755)
    await sandbox.upload(given, "deep/er/file")
    assert (await sandbox.exec("test -x deep/er/file && cp deep/er/file /tmp/copy")).return_code == 0
    await sandbox.download("/tmp/copy", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == given.read_bytes()
    await sandbox.upload(str(given), "/workspace/absolute")
    await sandbox.download("./deep/../absolute", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == given.read_bytes()


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "/etc/passwd", "/script.py", "link", "/proc/1/environ", "/workspace"]
)
async def test_no_path_leads_out_of_the_workspace(sandbox, tmp_path, path):
    await sandbox.exec("ln -s /etc/passwd link; ln -s /usr folder")
    (tmp_path / "given").write_text("x")
    with pytest.raises(SandboxError, match="is outside of what may be copied"):
        await sandbox.download(path, tmp_path / "out")
    with pytest.raises(SandboxError, match="is outside of what may be copied"):
        await sandbox.upload(tmp_path / "given", path)
    with pytest.raises(SandboxError, match="outside"):
        await sandbox.upload(tmp_path / "given", "folder/file")
    assert not (tmp_path / "out").exists()


async def test_what_is_no_file_is_not_copied(sandbox, tmp_path):
    await sandbox.exec("mkfifo fifo; mkdir folder; ln -s /dev/shm/nothing dangling")
    for path, why in (("fifo", "is no file"), ("folder", "no file|directory"), ("missing", "No such file")):
        with pytest.raises(SandboxError, match=why):
            await sandbox.download(path, tmp_path / "out")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SandboxError, match="cannot be copied into a sandbox"):
            await sandbox.upload(path, "file")
    with pytest.raises(SandboxError, match="is a folder"):
        await sandbox.download("missing", tmp_path)


async def test_thirty_two_at_once_are_kept_apart(provider):
    async def alone(number):
        async with AsyncSandbox(provider, SandboxSpec(env={"NUMBER": str(number)})) as sandbox:
            await sandbox.exec("echo $NUMBER > own; echo $NUMBER > /tmp/own; sleep 600 &")
            await asyncio.sleep(0.1)
            return (await sandbox.exec("cat own /tmp/own; ls; ps -eo args | grep -c '^sleep 600'")).stdout.split()

    told = await asyncio.gather(*(alone(number) for number in range(32)))
    assert told == [[str(number), str(number), "own", "1"] for number in range(32)]


async def test_commands_of_two_sandboxes_and_of_one_may_interleave(provider):
    async with AsyncSandbox(provider) as one, AsyncSandbox(provider) as other:
        waits = asyncio.create_task(one.exec("until [ -e go ]; do sleep 0.05; done; echo went"))
        await other.exec("touch go")
        await asyncio.sleep(0.2)
        assert not waits.done()
        await one.exec("touch go")
        assert (await waits).stdout == "went\n"


async def test_the_one_user_may_be_asked_for_and_no_other(sandbox):
    assert (await sandbox.exec("whoami", user="root")).stdout == "sandbox\n"
    with pytest.raises(SandboxError, match="no 'postgres'"):
        await sandbox.exec("whoami", user="postgres")


def test_the_event_loop_of_servers_will_do(tmp_path):
    async def used():
        async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, {"files": {"a": "b"}}) as sandbox:
            await sandbox.download("a", tmp_path / "a")
            return await sandbox.exec("cat a; exit 3"), await sandbox.exec("sleep 60", timeout_s=0.2)

    ended, late = uvloop.run(used())
    assert (ended.stdout, ended.return_code, late.error_type) == ("b", 3, "timeout")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_a_folder_for_workspaces_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SandboxCreateError, match="missing"):
        await AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path / "missing")}}).start()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"workdir": "/usr/local"}, "the workdir"),
        ({"workdir": "relative"}, "the workdir"),
        ({"resources": {"gpu": 1}}, "GPU"),
        ({"provider_options": {"allow_unconfined": True}}, "belongs in the provider's block"),
        ({"files": {"/usr/x": ""}}, "outside"),
    ],
)
async def test_a_sandbox_that_cannot_be_is_refused_with_its_reason(provider, spec, why):
    with pytest.raises(SandboxError, match=why):
        await AsyncSandbox(provider, spec).start()


async def test_without_bubblewrap_nothing_runs_and_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxCreateError, match="bubblewrap is not installed") as refused:
        await AsyncSandbox("bubblewrap").start()
    assert "allow_unconfined" in str(refused.value)


async def test_a_bubblewrap_that_cannot_start_is_quoted(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'no namespaces for you' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # The path is looked up for what is started, so its own is not enough.
    monkeypatch.setattr(os, "defpath", f"{tmp_path}:{os.defpath}")
    with pytest.raises(SandboxCreateError, match="no namespaces for you"):
        await AsyncSandbox("bubblewrap").start()


async def test_unconfined_if_told_to_commands_run_in_the_workspace_and_all_end_with_it(monkeypatch, tmp_path):
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    provider = create_provider({"bubblewrap": {"allow_unconfined": True, "workspaces": str(tmp_path)}})
    assert not (await provider.level()).is_confined
    monkeypatch.setenv("PATH", path)
    (tmp_path / "given").write_text("given")
    marker = f"sleep {700 + os.getpid()}.5"
    async with AsyncSandbox(provider, {"resources": {"memory_mib": 512}}) as sandbox:
        await sandbox.upload(tmp_path / "given", "file")
        assert (await sandbox.exec("cat file; echo made > made")).stdout == "given"
        await sandbox.download("made", tmp_path / "made")
        assert (tmp_path / "made").read_text() == "made\n"
        with pytest.raises(SandboxError, match="outside"):
            await sandbox.download("/etc/passwd", tmp_path / "out")
        big = await sandbox.exec([sys.executable, "-c", "bytearray(2**30)"])
        assert "MemoryError" in big.stderr
        await sandbox.exec(f"setsid {marker} >/dev/null 2>&1 &")
        assert marker in processes()
        assert (await sandbox.exec("setsid sleep 60 & sleep 60", timeout_s=0.3)).error_type == "timeout"
    assert marker not in processes()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


OWNER = """
import asyncio, sys
from nemo_gym.sandbox import AsyncSandbox

async def main():
    async with AsyncSandbox({"bubblewrap": {"workspaces": sys.argv[1]}}) as sandbox:
        await sandbox.exec(f"setsid sleep {sys.argv[2]} >/dev/null 2>&1 &")
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_killed_its_owner_leaves_no_process_and_the_next_one_clears_up(tmp_path):
    seconds = f"{800 + os.getpid()}.5"
    words = [sys.executable, "-c", OWNER, str(tmp_path), seconds]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)  # noqa: ASYNC220 - it is to be killed, not awaited
    try:
        assert owner.stdout.readline() == b"ready\n"
        assert f"sleep {seconds}" in processes()
        (left,) = tmp_path.glob(f"{PREFIX}*")
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    await until(lambda: is_gone(f"sleep {seconds}"))
    os.utime(left, (1, 1))
    async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}) as sandbox:
        assert not left.exists()
        (own,) = tmp_path.glob(f"{PREFIX}*")
        os.utime(own, (1, 1))
        # A folder in use is locked, however old it is.
        async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}):
            assert (await sandbox.exec("echo alive")).stdout == "alive\n"
            assert own.exists()


async def is_gone(command):
    return command not in processes()


AS_NOBODY = """
import asyncio, json
from nemo_gym.sandbox import AsyncSandbox

async def main():
    async with AsyncSandbox("bubblewrap", {"files": {"given": "text"}}) as sandbox:
        told = [str(await sandbox.provider.level())]
        for command in ("cat given; touch new", "ls -l /proc/1/fd", "sleep 60", "cat /etc/shadow"):
            ended = await sandbox.exec(command, timeout_s=1)
            told.append([ended.return_code, ended.stdout])
    print(json.dumps(told))

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"there is no {SYSTEM_PYTHON} that everybody may run")
def test_a_user_without_rights_has_sandboxes_as_well():
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(Path(nemo_gym.__file__).parent, Path(folder) / "nemo_gym")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
        environment = {"PATH": os.defpath, "PYTHONPATH": f"{folder}:{packages}"}
        told, usable = (
            subprocess.run(
                [SYSTEM_PYTHON, "-B", "-c", code],
                **as_nobody,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            for code in (AS_NOBODY, "import sys, pydantic, omegaconf; sys.exit(sys.version_info < (3, 11))")
        )
    if usable.returncode != 0:
        pytest.skip(f"{SYSTEM_PYTHON} cannot use the packages of this environment")
    if "is not run here" in told.stderr:
        pytest.skip("users may not make namespaces here")
    assert told.returncode == 0, told.stderr
    level, plain, looked, slept, read = json.loads(told.stdout)
    assert level.startswith("bubblewrap")
    assert plain == [0, "text"]
    assert looked[0] != 0
    assert slept[0] == 124
    assert read == [1, ""]
