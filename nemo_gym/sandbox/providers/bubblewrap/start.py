"""Start and end one bubblewrap sandbox: its folder, control group and first process."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

from nemo_gym.sandbox.confinement import supervisor
from nemo_gym.sandbox.confinement.bubblewrap import SCRATCH, Interpreter, joining
from nemo_gym.sandbox.confinement.cgroups import ControlGroup
from nemo_gym.sandbox.confinement.level import OWN_PROCESSES, Level
from nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxError, SandboxSpec
from nemo_gym.sandbox.providers.bubblewrap.command import BubblewrapConfig, checked_workdir, confined_command
from nemo_gym.sandbox.providers.bubblewrap.folders import Home
from nemo_gym.sandbox.providers.bubblewrap.process import SandboxProcess

logger = logging.getLogger(__name__)

READY_S = 30.0
GIBIBYTE_IN_MIB = 1024


@dataclass
class RunningSandbox:
    process: SandboxProcess
    home: Home
    env: dict[str, str]
    uid: int | None
    has_network: bool
    workdir: str | None
    """The path that the spec sets for the workspace. A sandbox without confinement uses another folder."""

    async def end(self) -> None:
        """Kill all processes of the sandbox and remove its workspace."""
        await _end(self.process, self.home)


async def started(spec: SandboxSpec, config: BubblewrapConfig, level: Level, uid: int | None) -> RunningSandbox:
    """Start a sandbox that runs commands as user `uid`. Raise `SandboxCreateError` or `OSError` if that fails."""
    workdir = checked_workdir(spec.workdir)
    home = await asyncio.to_thread(Home, config.workspaces, uid)
    process = None
    try:
        group = await asyncio.to_thread(_group, home.folder.name, spec, config) if level.has_groups else None
        if level.bwrap is None:
            workdir, command = str(home.workspace), Interpreter.base().script(supervisor.__file__)
        else:
            command = confined_command(level.bwrap, home, workdir, config, spec.resources.disk_gib)
        settings = _settings(workdir, spec, config, level, uid)
        process = await SandboxProcess.start(
            joining(group.join_files, command) if group else command, settings, group, config.output_bytes
        )
        env = {**_base_environment(workdir), **{key: str(value) for key, value in spec.env.items()}}
        await _until_ready(process, env, spec.ready_timeout_s or READY_S)
    except BaseException:
        await _end(process, home)
        raise
    return RunningSandbox(process, home, env, uid, config.has_network or not level.is_confined, spec.workdir)


def _base_environment(home: str) -> dict[str, str]:
    """Return the default environment variables of commands. Variables of this process are not inherited."""
    path = f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{os.path.dirname(Interpreter.base().path)}"
    return {"PATH": path, "HOME": home, "USER": "sandbox", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


async def _until_ready(process: SandboxProcess, env: dict[str, str], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            reply = await process.run(["/bin/sh", "-c", ":"], env, cwd=None, timeout_s=None)
    except TimeoutError:
        raise SandboxCreateError(
            f"the sandbox was not ready after {timeout_s:g} s. Raise its ready_timeout_s."
        ) from None
    except SandboxError as error:
        await process.stop()
        output = (await process.startup_errors()).strip()
        raise SandboxCreateError(output or str(error)) from error
    if reply.code != 0:
        raise SandboxCreateError(f"the sandbox cannot run commands: {reply.stderr.strip() or reply.code}")


async def _end(process: SandboxProcess | None, home: Home) -> None:
    try:
        if process is not None:
            await process.stop()
    finally:
        await asyncio.to_thread(home.remove)


def _settings(
    workdir: str, spec: SandboxSpec, config: BubblewrapConfig, level: Level, uid: int | None
) -> supervisor.Settings:
    disk = spec.resources.disk_gib
    return {
        "is_alone": level.is_confined,
        "workdir": workdir,
        "roots": [workdir, *((*SCRATCH, *config.scratch) if level.is_confined else ())],
        "uid": uid,
        "processes": config.pids,
        # Without a control group, only the address space of each process can be limited.
        "address_space_mib": None if level.has_groups else config.memory_mib,
        "file_mib": None if disk is None else int(disk * GIBIBYTE_IN_MIB) or 1,
        "seccomp": level.seccomp(),
        "ttl_s": spec.ttl_s,
    }


def _group(name: str, spec: SandboxSpec, config: BubblewrapConfig) -> ControlGroup:
    # Add the size of /tmp, and the size limit of the workspace, to the memory limit, because both are kept in memory.
    disk_mib = int((spec.resources.disk_gib or 0) * GIBIBYTE_IN_MIB)
    memory_mib, processes = config.memory_mib + config.scratch_mib + disk_mib, config.pids + OWN_PROCESSES
    try:
        return ControlGroup(name, memory_mb=memory_mib, processes=processes, cpus=spec.resources.cpu)
    except OSError:
        if spec.resources.cpu is None:
            raise
        logger.warning("sandboxes cannot be limited to %s CPUs on this machine", spec.resources.cpu)
        return ControlGroup(name, memory_mb=memory_mib, processes=processes)
