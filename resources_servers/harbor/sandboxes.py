"""The sandboxes of a task: one in which an agent works, and a new one for each verification."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym import EnvironmentFailed
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxProvider, SandboxSpec
from nemo_gym.sandbox.providers.base import LOST, TIMED_OUT
from resources_servers.harbor.task import LOGS, SOLUTION, TESTS, HarborTask
from resources_servers.harbor.tree import Tree, archive_of

SCRATCH = [LOGS, TESTS, SOLUTION]
HOME = {"HOME": "/tmp"}
"""Not the working folder, because shells and Python read start-up files of the home folder."""
COPY_S, SPARE_S = 120.0, 600.0
OUTPUT_BYTES, MOST_REWARD, SHOWN = 32_768, 8_192, 4_000
TEST = f"mkdir -p {LOGS}/verifier {LOGS}/agent {LOGS}/artifacts && chmod +x {TESTS}/test.sh && {TESTS}/test.sh 2>&1"
READ_REWARD = (
    f"cd {LOGS}/verifier && for name in reward.json reward.txt; do [ ! -e $name ] || "
    f"{{ echo $name && head -c {MOST_REWARD + 1} $name; exit; }}; done"
)
PACK = "tar -czf /tmp/.left.tar.gz ."


@dataclass(frozen=True)
class Outcome:
    """The rewards that a task's tests wrote, by name, and the end of their output."""

    rewards: dict[str, float]
    output: str


@asynccontextmanager
async def sandbox_of(
    provider: SandboxProvider, task: HarborTask, files: Tree, ttl_s: float | None
) -> AsyncIterator[AsyncSandbox]:
    """Yield a new sandbox with these files as its working folder. It ends after `ttl_s` seconds.

    Raise `EnvironmentFailed` if it cannot start.
    """
    spec = SandboxSpec(workdir=task.workdir, env={**HOME, **task.env}, resources=task.resources, ttl_s=ttl_s)
    try:
        async with AsyncSandbox(provider, spec) as sandbox:
            await put(sandbox, files, task.workdir)
            yield sandbox
    except SandboxError as error:
        raise EnvironmentFailed(f"the sandbox of {task.name} failed: {error}") from error


async def put(sandbox: AsyncSandbox, files: Tree, folder: str) -> None:
    """Write a tree into a folder of a sandbox. Raise `EnvironmentFailed` if that fails."""
    with tempfile.NamedTemporaryFile(prefix="nemo_gym-harbor-") as archive:
        archive.write(await asyncio.to_thread(archive_of, files))
        archive.flush()
        await sandbox.upload(archive.name, "/tmp/.given.tar.gz")
    command = ["tar", "-xpzf", "/tmp/.given.tar.gz", "-C", folder]
    await ran(sandbox, command, f"the files for {folder} cannot be written")
    await ran(sandbox, ["rm", "/tmp/.given.tar.gz"], "the archive cannot be removed")


async def packed(sandbox: AsyncSandbox) -> bytes:
    """Return an archive of a sandbox's working folder. Raise `EnvironmentFailed` if that fails."""
    await ran(sandbox, PACK, "the working folder cannot be packed")
    with tempfile.TemporaryDirectory(prefix="nemo_gym-harbor-") as folder:
        archive = Path(folder, "left.tar.gz")
        try:
            await sandbox.download("/tmp/.left.tar.gz", archive)
        except SandboxError as error:
            raise EnvironmentFailed(f"the working folder cannot be packed: {error}") from error
        return await asyncio.to_thread(archive.read_bytes)


async def ran(sandbox: AsyncSandbox, command: str | list[str], problem: str) -> str:
    result = await sandbox.exec(command, timeout_s=COPY_S)
    if result.return_code != 0:
        raise EnvironmentFailed(f"{problem}: {(result.stderr or '').strip()[-SHOWN:] or result.return_code}")
    return result.stdout or ""


async def verified(provider: SandboxProvider, task: HarborTask, files: Tree) -> Outcome:
    """Run a task's tests on these files in a new sandbox, and return the rewards that they write.

    Raise `EnvironmentFailed` if the tests time out, or if they write no reward that can be read. Their exit code does
    not count, as in Harbor.
    """
    timeout_s = task.toml.verifier.timeout_sec
    async with sandbox_of(provider, task, files, timeout_s + SPARE_S) as sandbox:
        await put(sandbox, task.tests, TESTS)
        result = await sandbox.exec(TEST, env=task.toml.verifier.env, timeout_s=timeout_s)
        output = (result.stdout or "")[-SHOWN:]
        if result.error_type == TIMED_OUT:
            raise EnvironmentFailed(f"{task.name}: the tests did not end within {timeout_s:g} s{_shown(output)}")
        if result.error_type == LOST:
            raise EnvironmentFailed(f"{task.name}: the sandbox of the tests was lost: {result.stderr}")
        name, _, text = (await ran(sandbox, READ_REWARD, f"{task.name}: the reward cannot be read")).partition("\n")
    if not name:
        raise EnvironmentFailed(
            f"{task.name}: the tests wrote neither {LOGS}/verifier/reward.txt nor reward.json{_shown(output)}"
        )
    try:
        return Outcome(rewards_in(name, text), output)
    except (ValueError, OverflowError, RecursionError) as error:
        raise EnvironmentFailed(f"{task.name}: {LOGS}/verifier/{name}: {error}{_shown(output)}") from error


def rewards_in(name: str, text: str) -> dict[str, float]:
    """Return the rewards in the text of `reward.json` or `reward.txt`.

    Raise `ValueError`, or `OverflowError` or `RecursionError` for hostile JSON, if they cannot be read.
    """
    if len(text) > MOST_REWARD:
        raise ValueError(f"it has more than {MOST_REWARD} characters")
    if not text.strip():
        raise ValueError("it is empty")
    found = json.loads(text) if name == "reward.json" else {"reward": float(text)}
    if not isinstance(found, Mapping) or not found:
        raise ValueError("it is not a JSON object of rewards")
    for key, value in found.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the reward {key!r} is {value!r}, which is not a finite number")
    return {key: float(value) for key, value in found.items()}


def _shown(output: str) -> str:
    lines = output.strip().splitlines()
    return f". Their last line: {lines[-1][:300]}" if lines else ""
