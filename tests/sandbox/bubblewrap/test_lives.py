"""The lifecycle of bubblewrap sandboxes: start, concurrency, end and cleanup."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
import uvloop

from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, SandboxSpec
from nemo_gym.sandbox.providers.bubblewrap.folders import PREFIX
from tests.sandbox.bubblewrap.watching import COMMANDS, PATIENCE_S, processes, succeeds, until

pytestmark = [pytest.mark.needs_bubblewrap, pytest.mark.slow]


async def test_background_processes_end_with_sandbox(provider):
    async with AsyncSandbox(provider, SandboxSpec()) as sandbox:
        began = time.monotonic()
        await sandbox.exec("(for n in 1 2 3 4 5 6; do echo $n; sleep 0.1; done; touch written; sleep 600) & :")
        assert time.monotonic() - began < PATIENCE_S
        await until(lambda: succeeds(sandbox, "test -e written"))
        marker = f"sleep {600 + os.getpid()}.5"
        await sandbox.exec(f"setsid {marker} >/dev/null 2>&1 &")
        assert marker in processes()
    assert marker not in processes()


async def test_entrypoint_runs_from_the_start(provider):
    async with AsyncSandbox(provider, SandboxSpec(entrypoint=["sh", "-c", "touch started; sleep 600"])) as sandbox:
        await until(lambda: succeeds(sandbox, "test -e started"))


async def test_sandbox_ends_after_its_ttl(provider):
    async with AsyncSandbox(provider, SandboxSpec(ttl_s=1)) as sandbox:
        result = await sandbox.exec("sleep 60")
        assert (result.error_type, result.return_code) == ("sandbox", -1)
        await until(lambda: is_stopped(sandbox))
        assert (await sandbox.exec("true")).error_type == "sandbox"


async def is_stopped(sandbox):
    return await sandbox.status() == "stopped"


async def test_concurrent_sandboxes_are_isolated(provider):
    all_sleep = asyncio.Barrier(32)

    async def alone(number):
        async with AsyncSandbox(provider, SandboxSpec(env={"NUMBER": str(number)})) as sandbox:
            await sandbox.exec("echo $NUMBER > own; echo $NUMBER > /tmp/own; sleep 600 &")
            await until(lambda: succeeds(sandbox, f"{{ {COMMANDS}; }} | grep -q '^sleep 600'"))
            await all_sleep.wait()
            return (
                await sandbox.exec(f"cat own /tmp/own; ls; {{ {COMMANDS}; }} | grep -c '^sleep 600'")
            ).stdout.split()

    results = await asyncio.gather(*(alone(number) for number in range(32)))
    assert results == [[str(number), str(number), "own", "1"] for number in range(32)]


async def test_commands_run_concurrently(provider):
    async with AsyncSandbox(provider, SandboxSpec()) as one, AsyncSandbox(provider, SandboxSpec()) as other:
        waits = asyncio.create_task(one.exec("until [ -e go ]; do sleep 0.05; done; echo went"))
        await other.exec("touch go")
        await asyncio.sleep(0.2)
        assert not waits.done()
        await one.exec("touch go")
        assert (await waits).stdout == "went\n"


def test_sandbox_works_on_uvloop(tmp_path):
    async def used():
        async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, {"files": {"a": "b"}}) as sandbox:
            await sandbox.download("a", tmp_path / "a")
            return await sandbox.exec("cat a; exit 3"), await sandbox.exec("sleep 60", timeout_s=0.2)

    ended, late = uvloop.run(used())
    assert (ended.stdout, ended.return_code, late.error_type) == ("b", 3, "timeout")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_missing_workspaces_folder_is_named(tmp_path):
    with pytest.raises(SandboxCreateError, match="missing"):
        await AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path / "missing")}}).start({})


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"workdir": "/usr/local"}, "the workdir"),
        ({"workdir": "relative"}, "the workdir"),
        ({"resources": {"gpu": 1}}, "GPU"),
        ({"provider_options": {"allow_unconfined": True}}, "belongs in the provider's config block"),
        ({"files": {"/usr/x": ""}}, "outside"),
    ],
)
async def test_impossible_sandbox_is_rejected_with_reason(provider, spec, why):
    with pytest.raises(SandboxError, match=why):
        await AsyncSandbox(provider, spec).start()


OWNER = """
import asyncio, sys
from nemo_gym.sandbox import AsyncSandbox

async def main():
    async with AsyncSandbox({"bubblewrap": {"workspaces": sys.argv[1]}}, {}) as sandbox:
        await sandbox.exec(f"setsid sleep {sys.argv[2]} >/dev/null 2>&1 &")
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_next_owner_cleans_up_after_killed_one(tmp_path):
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
    async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, {}) as sandbox:
        assert not left.exists()
        (own,) = tmp_path.glob(f"{PREFIX}*")
        os.utime(own, (1, 1))
        # A folder in use is locked, however old it is.
        async with AsyncSandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, {}):
            assert (await sandbox.exec("echo alive")).stdout == "alive\n"
            assert own.exists()


async def is_gone(command):
    return command not in processes()
