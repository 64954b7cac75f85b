"""Sandboxes as apptainer instances, controlled through apptainer's command line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from nemo_gym.sandbox.providers.base import (
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    words_of,
)
from nemo_gym.sandbox.providers.commandline import Ended, ran
from nemo_gym.sandbox.providers.containers import QUICK_S, ContainerProvider, CreateConfig, ExecConfig, Group

ROOT = ("root", "0")
FAILED_CODE = 255
"""The exit code if apptainer itself fails. A command may also exit with this code."""


class ApptainerCreateConfig(CreateConfig):
    """Options for new apptainer instances, whose image is a file, a folder, a URL, or the name of a docker image."""

    program: str = "apptainer"
    """The program to run: apptainer, or singularity, which has the same command line."""
    has_network: bool = False
    """Whether instances share this machine's network. False requires permission to create network namespaces."""
    is_writable: bool = True
    """Whether all files are writable for the instance's lifetime. If not, only /tmp and the home folder are."""
    binds: list[str] = Field(default_factory=list)
    """Files and folders of this machine to mount in the instance, as `source:target`. One string is also accepted."""
    mount_point: str | None = "/sandbox"
    """The path at which each instance gets a new, writable folder of this machine; None for no such folder."""
    extra_start_args: list[str] = Field(default_factory=list)
    """Additional options of `apptainer instance start`."""

    @field_validator("binds", mode="before")
    @classmethod
    def _as_list(cls, binds: Any) -> Any:
        return [binds] if isinstance(binds, str) else binds


class ApptainerExecConfig(ExecConfig):
    """Options for commands that run in apptainer instances."""

    fakeroot_for_root: bool = True
    """Whether commands for the user `root` run with `--fakeroot`. If not, they run as the user of this process."""
    default_binds: list[str] = Field(default_factory=list)
    """Additional `binds`. They are mounted at the start, because a running instance cannot get new mounts."""


class ApptainerProvider(ContainerProvider[ApptainerCreateConfig, ApptainerExecConfig]):
    """A provider of apptainer instances. `bin_path` is the path of apptainer, and overrides `program` in `create`."""

    name = "apptainer"
    create_options = ApptainerCreateConfig
    exec_options = ApptainerExecConfig

    def __init__(
        self,
        create: Group = None,
        exec: Group = None,
        probe: Group = None,
        bin_path: str | None = None,
        **options: object,
    ) -> None:
        super().__init__(create, exec, probe, **options, **({"program": bin_path} if bin_path else {}))
        self._ends: dict[str, asyncio.Task[None]] = {}
        self._folders: dict[str, str] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        handle = await super().create(spec)
        if spec.ttl_s is not None:
            self._ends[handle.sandbox_id] = asyncio.create_task(self._close_after(handle, spec.ttl_s))
        return handle

    async def exec(
        self,
        handle: SandboxHandle,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command in the instance. A `user` other than root is ignored, because an instance has one user."""
        spec = self._made.get(handle.sandbox_id, SandboxSpec())
        is_fake_root = str(user) in ROOT and self.exec_config.fakeroot_for_root and os.geteuid() != 0
        options = [*(["--pwd", cwd] if cwd else []), *(["--fakeroot"] if is_fake_root else [])]
        verb, address = self._inside(handle)
        words = [verb, *options, *self.exec_config.extra_exec_args, address, *words_of(command)]
        async with self._limited(timeout_s) as limit_s:
            ended = await self._ran(words, {**spec.env, **(env or {})}, limit_s)
        return ended.as_result(is_lost=ended.return_code == FAILED_CODE and "FATAL:" in ended.stderr)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        ended = await self._quick("instance", "list", handle.sandbox_id)
        if ended.return_code != 0:
            return SandboxStatus.UNKNOWN
        return SandboxStatus.RUNNING if handle.sandbox_id in ended.stdout.split() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the URL of the same port on this machine, because the instance shares this machine's network.

        Raise `SandboxError` if the instance does not have a network.
        """
        if not self.create_config.has_network:
            raise SandboxError(
                f"port {port} cannot be reached: the instance {handle.sandbox_id} does not have a network. "
                "Set has_network: true."
            )
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        end = self._ends.pop(handle.sandbox_id, None)
        if end is not None and end is not asyncio.current_task():
            end.cancel()
        if self._made.pop(handle.sandbox_id, None) is not None:
            await self._quick("instance", "stop", "--force", handle.sandbox_id)
        if folder := self._folders.pop(handle.sandbox_id, None):
            await asyncio.to_thread(shutil.rmtree, folder)

    async def _started(
        self, handle: SandboxHandle, spec: SandboxSpec, config: ApptainerCreateConfig, image: str
    ) -> Ended:
        binds = [*self.exec_config.default_binds, *config.binds]
        if config.mount_point:
            self._folders[handle.sandbox_id] = tempfile.mkdtemp(prefix="nemo_gym-mount-")
            binds.append(f"{self._folders[handle.sandbox_id]}:{config.mount_point}")
        options = _start_options(spec, config, binds)
        words = ["instance", "start", *options, _with_scheme(image), handle.sandbox_id]
        ended = await self._ran(words, spec.env, spec.ready_timeout_s or config.start_timeout_s)
        if ended.return_code == 0 and spec.entrypoint:
            await self.exec(handle, ["sh", "-c", '"$@" >/dev/null 2>&1 &', "sh", *spec.entrypoint], timeout_s=QUICK_S)
        return ended

    def _inside(self, handle: SandboxHandle) -> list[str]:
        return ["exec", f"instance://{handle.sandbox_id}"]

    async def _ran(self, words: Sequence[str], env: Mapping[str, str], timeout_s: float | None) -> Ended:
        # Add this prefix, so that Apptainer sets the environment variables inside the sandbox.
        variables = {f"APPTAINERENV_{key}": str(value) for key, value in env.items()}
        return await ran([self.create_config.program, *words], env=variables, timeout_s=timeout_s)

    async def _close_after(self, handle: SandboxHandle, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await self.close(handle)


def _with_scheme(image: str) -> str:
    is_complete = "://" in image or image.startswith(("/", ".")) or image.endswith(".sif")
    return image if is_complete else f"docker://{image}"


def _start_options(spec: SandboxSpec, config: ApptainerCreateConfig, binds: Sequence[str]) -> list[str]:
    wanted = spec.resources if config.apply_resource_limits else SandboxResources()
    words = ["--containall", *(["--writable-tmpfs"] if config.is_writable else [])]
    words += [] if config.has_network else ["--net", "--network", "none"]
    words += ["--nv"] if spec.resources.gpu else []
    words += ["--cpus", str(wanted.cpu)] if wanted.cpu else []
    words += ["--memory", f"{wanted.memory_mib}M"] if wanted.memory_mib else []
    words += ["--pids-limit", str(wanted.pids)] if wanted.pids else []
    for bind in binds:
        words += ["--bind", bind]
    return [*words, *config.extra_start_args]
