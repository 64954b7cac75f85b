"""Sandboxes as apptainer instances, controlled through its command line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from pydantic import Field

from nemo_gym.sandbox.providers.base import (
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    words_of,
)
from nemo_gym.sandbox.providers.commandline import Ended, ran
from nemo_gym.sandbox.providers.containers import QUICK_S, READY_S, ContainerProvider, CreateConfig
from nemo_gym.sandbox.providers.options import options_of

FAILED_CODE = 255
"""The exit code of apptainer's own failures; a command may exit with it too."""


class ApptainerCreateConfig(CreateConfig):
    """Options of new instances. Their image is a file, a folder, or a URL such as `docker://busybox`."""

    program: str = "apptainer"
    """Or singularity, which has the same command line."""
    has_network: bool = True
    """False requires permission to create network namespaces."""
    is_writable: bool = True
    """Whether all files are writable for the instance's lifetime; otherwise only /tmp and the home folder are."""
    binds: list[str] = Field(default_factory=list)


class ApptainerProvider(ContainerProvider[ApptainerCreateConfig]):
    """A provider of apptainer instances. The fields of `create` may also be passed as keyword arguments."""

    name = "apptainer"

    def __init__(self, create: ApptainerCreateConfig | Mapping[str, object] | None = None, **options: object) -> None:
        super().__init__(options_of(ApptainerCreateConfig, self.name, create, options))
        self._ends: dict[str, asyncio.Task[None]] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        handle = await super().create(spec)
        if spec.entrypoint:
            await self.exec(handle, ["sh", "-c", '"$@" >/dev/null 2>&1 &', "sh", *spec.entrypoint], timeout_s=QUICK_S)
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
        """Run a command in the instance. `user` is ignored, because an instance has one user."""
        spec = self._made.get(handle.sandbox_id, SandboxSpec())
        folder = cwd or spec.workdir
        where = ["--pwd", folder] if folder else []
        verb, address = self._inside(handle)
        words = [verb, *where, address, *words_of(command)]
        ended = await self._ran(words, {**spec.env, **(env or {})}, timeout_s)
        return ended.as_result(is_lost=ended.return_code == FAILED_CODE and "FATAL:" in ended.stderr)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        ended = await self._quick("instance", "list", handle.sandbox_id)
        if ended.return_code != 0:
            return SandboxStatus.UNKNOWN
        return SandboxStatus.RUNNING if handle.sandbox_id in ended.stdout.split() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the same port of this machine, whose network the instance shares."""
        if not self.create_config.has_network:
            raise SandboxError(f"port {port} cannot be reached: the instance {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        end = self._ends.pop(handle.sandbox_id, None)
        if end is not None and end is not asyncio.current_task():
            end.cancel()
        if self._made.pop(handle.sandbox_id, None) is not None:
            await self._quick("instance", "stop", "--force", handle.sandbox_id)

    async def _started(
        self, handle: SandboxHandle, spec: SandboxSpec, config: ApptainerCreateConfig, image: str
    ) -> Ended:
        words = ["instance", "start", *_start_options(spec, config), image, handle.sandbox_id]
        return await self._ran(words, spec.env, spec.ready_timeout_s or READY_S)

    def _inside(self, handle: SandboxHandle) -> list[str]:
        return ["exec", f"instance://{handle.sandbox_id}"]

    async def _ran(self, words: Sequence[str], env: Mapping[str, str], timeout_s: float | None) -> Ended:
        # Apptainer reads the sandbox's variables from its own environment, under this prefix.
        variables = {f"APPTAINERENV_{key}": str(value) for key, value in env.items()}
        return await ran([self.create_config.program, *words], env=variables, timeout_s=timeout_s)

    async def _close_after(self, handle: SandboxHandle, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await self.close(handle)


def _start_options(spec: SandboxSpec, config: ApptainerCreateConfig) -> list[str]:
    wanted = spec.resources
    words = ["--containall", *(["--writable-tmpfs"] if config.is_writable else [])]
    words += [] if config.has_network else ["--net", "--network", "none"]
    words += ["--nv"] if wanted.gpu else []
    words += ["--cpus", str(wanted.cpu)] if wanted.cpu else []
    words += ["--memory", f"{wanted.memory_mib}M"] if wanted.memory_mib else []
    words += ["--pids-limit", str(wanted.pids)] if wanted.pids else []
    for bind in config.binds:
        words += ["--bind", bind]
    return [*words, *config.extra_args]
