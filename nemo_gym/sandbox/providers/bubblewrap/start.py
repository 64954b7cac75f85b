"""Start and end one bubblewrap sandbox: its folder, control group and first process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.confinement.bubblewrap import Interpreter, joining
from nemo_gym.confinement.cgroups import ControlGroup
from nemo_gym.confinement.level import OWN_PROCESSES, Level
from nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxError, SandboxSpec
from nemo_gym.sandbox.providers.bubblewrap import supervisor
from nemo_gym.sandbox.providers.bubblewrap.command import Place, checked_workdir, confined_command, confined_place
from nemo_gym.sandbox.providers.bubblewrap.folders import Home
from nemo_gym.sandbox.providers.bubblewrap.process import SandboxProcess, base_environment, folder_of
from nemo_gym.sandbox.providers.commandline import DEFAULT_OUTPUT_BYTES

logger = logging.getLogger(__name__)

READY_S = 30.0
GIBIBYTE_IN_MIB = 1024


class BubblewrapConfig(BaseModel):
    """The defaults for the sandboxes of a provider."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    memory_mib: int = Field(default=2048, gt=0)
    pids: int = Field(default=256, gt=0)
    scratch_mib: int = Field(default=256, gt=0)
    """The size of /tmp, and of /dev/shm; counts as memory."""
    readable: list[str] = Field(default_factory=list)
    """Additional files and folders of this machine that sandboxes may read."""
    has_network: bool = False
    """Whether sandboxes share this machine's network; otherwise each has its own, isolated one."""
    workspaces: str | None = None
    """The folder for the workspaces; the system's temporary folder by default."""
    output_bytes: int = Field(default=DEFAULT_OUTPUT_BYTES, gt=0)
    """The middle of longer outputs is omitted."""
    allow_unconfined: bool = False
    """Run commands as this user, with access to its files and network, if they cannot be confined."""


@dataclass
class RunningSandbox:
    process: SandboxProcess
    home: Home
    place: Place
    env: dict[str, str]
    uid: int | None
    has_network: bool

    async def end(self) -> None:
        """Kill all its processes and remove its workspace."""
        await _end(self.process, self.home)


async def started(spec: SandboxSpec, config: BubblewrapConfig, level: Level, uid: int | None) -> RunningSandbox:
    """Start a sandbox that runs commands as user `uid`. Raise `SandboxCreateError` or `OSError` if that fails."""
    workdir = checked_workdir(spec.workdir)
    home = await asyncio.to_thread(Home, config.workspaces, uid)
    process = None
    try:
        place = confined_place(workdir) if level.is_confined else Place(str(home.workspace), [str(home.workspace)])
        group = await asyncio.to_thread(_group, home.folder.name, spec, config) if level.has_groups else None
        command = _command(home, place, spec, config, level)
        settings = _settings(place, spec, config, level, uid)
        process = await SandboxProcess.start(
            joining(group.join_files, command) if group else command, settings, group, config.output_bytes
        )
        env = {**base_environment(place.workdir, folder_of(Interpreter.base().path)), **spec.env}
        env = {key: str(value) for key, value in env.items()}
        await _until_ready(process, env, spec.ready_timeout_s or READY_S)
    except BaseException:
        await _end(process, home)
        raise
    return RunningSandbox(process, home, place, env, uid, config.has_network or not level.is_confined)


async def _until_ready(process: SandboxProcess, env: dict[str, str], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            reply = await process.run(["/bin/sh", "-c", ":"], env, cwd=None, timeout_s=None)
    except TimeoutError:
        raise SandboxCreateError(f"the sandbox was not ready after {timeout_s:g} s.") from None
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


def _command(home: Home, place: Place, spec: SandboxSpec, config: BubblewrapConfig, level: Level) -> list[str]:
    if level.bwrap is None:
        return Interpreter.base().script(str(supervisor.__file__))
    return confined_command(
        level.bwrap,
        home,
        place.workdir,
        scratch_mib=config.scratch_mib,
        disk_gib=spec.resources.disk_gib,
        readable=config.readable,
        has_network=config.has_network,
    )


def _settings(
    place: Place, spec: SandboxSpec, config: BubblewrapConfig, level: Level, uid: int | None
) -> dict[str, Any]:
    disk = spec.resources.disk_gib
    return {
        "is_alone": level.is_confined,
        "workdir": place.workdir,
        "roots": place.roots,
        "uid": uid,
        "processes": config.pids,
        # Without a control group, only the address space of each process can be limited.
        "address_space_mib": None if level.has_groups else config.memory_mib,
        "file_mib": None if disk is None else int(disk * GIBIBYTE_IN_MIB) or 1,
        "ttl_s": spec.ttl_s,
    }


def _group(name: str, spec: SandboxSpec, config: BubblewrapConfig) -> ControlGroup:
    disk_mib = int((spec.resources.disk_gib or 0) * GIBIBYTE_IN_MIB)
    limits: dict[str, Any] = {
        # /tmp and a workspace of limited size are kept in memory.
        "memory_mb": config.memory_mib + config.scratch_mib + disk_mib,
        "processes": config.pids + OWN_PROCESSES,
    }
    try:
        return ControlGroup(name, **limits, cpus=spec.resources.cpu)
    except OSError:
        if spec.resources.cpu is None:
            raise
        logger.warning("sandboxes cannot be limited to %s CPUs on this machine", spec.resources.cpu)
        return ControlGroup(name, **limits)
