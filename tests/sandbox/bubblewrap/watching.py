"""What runs in a sandbox and on this machine, and to wait until that changes."""

import asyncio
import subprocess
import time

PATIENCE_S = 30.0
COMMANDS = """for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$file"; echo; done 2>/dev/null"""
"""Lists the commands under way, one per line; `ps` is not on every machine."""


async def ran(sandbox, command, **how):
    result = await sandbox.exec(command, **how)
    return result.return_code, result.stdout, result.stderr


async def lists(sandbox, command, *, not_any_more=False):
    return (command in (await sandbox.exec(COMMANDS)).stdout) != not_any_more


async def until(has_come):
    deadline = time.monotonic() + PATIENCE_S
    while not await has_come():
        assert time.monotonic() < deadline, "it has not come to that"
        await asyncio.sleep(0.05)


async def succeeds(sandbox, command):
    return (await sandbox.exec(command)).return_code == 0


def processes():
    return subprocess.run(["/bin/sh", "-c", COMMANDS], capture_output=True, text=True, check=True).stdout
