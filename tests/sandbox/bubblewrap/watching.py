"""List the processes in a sandbox or on this machine, and wait until they change."""

import asyncio
import subprocess
import time

PATIENCE_S = 100.0
COMMANDS = """for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$file"; echo; done 2>/dev/null"""
"""Lists the running commands, one per line, because some machines have no `ps`."""


async def ran(sandbox, command, **how):
    result = await sandbox.exec(command, **how)
    return result.return_code, result.stdout, result.stderr


async def lists(sandbox, command, *, is_gone=False):
    return (command in (await sandbox.exec(COMMANDS)).stdout) != is_gone


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.05)


async def succeeds(sandbox, command):
    return (await sandbox.exec(command)).return_code == 0


def processes():
    return subprocess.run(["/bin/sh", "-c", COMMANDS], capture_output=True, text=True, check=True).stdout
