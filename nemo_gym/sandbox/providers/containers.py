"""A base class for providers that start sandboxes and copy files with a program such as `docker`."""

from __future__ import annotations

import asyncio
import posixpath
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
)
from nemo_gym.sandbox.providers.commandline import Ended, opened, ran, require_program, written_to
from nemo_gym.sandbox.providers.options import options_of
from nemo_gym.sandbox.providers.probe import ProbeConfig, until_ready

QUICK_S = 60.0
"""The timeout of calls that only query or remove a sandbox."""
COPY_S = 600.0


class CreateConfig(BaseModel):
    """The `create` options of a container provider, which define how it starts a sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    program: str
    image: str | None = None
    """The image for specs that do not name one."""
    image_rewrites: Any = None
    """Rewrites of image names, in a form that `rewrite_image` accepts."""
    start_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds that a start may take, including the download of the image. `ready_timeout_s` of a spec overrides it."""
    apply_resource_limits: bool = True
    """Whether the limits in a spec's `resources` are applied. Set it to False on machines that cannot apply them."""


class ExecConfig(BaseModel):
    """The `exec` options of a container provider, which define how it runs a command in a sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    default_timeout_s: float | None = Field(default=180.0, gt=0)
    """The timeout in seconds of commands that are run with `timeout_s=None`; None for no timeout."""
    extra_exec_args: list[str] = Field(default_factory=list)
    """Additional options of the provider's `exec` command."""
    concurrency: int = Field(default=32, gt=0)
    """The maximum number of commands that the provider runs at the same time."""


Config = TypeVar("Config", bound=CreateConfig)
Exec = TypeVar("Exec", bound=ExecConfig)
Group = BaseModel | Mapping[str, object] | None
"""A group of options, as a config object or as a mapping."""


class ContainerProvider(SandboxProvider, Generic[Config, Exec]):
    """A sandbox provider that runs a program such as `docker` for each operation.

    It takes three groups of options: `create`, `exec` and `probe`. The fields of `create` can also be passed as
    keyword arguments.
    """

    create_options: type[Config]
    exec_options: type[Exec]

    def __init__(self, create: Group = None, exec: Group = None, probe: Group = None, **options: object) -> None:
        self.create_config = options_of(self.create_options, self.name, create, options)
        self.exec_config = options_of(self.exec_options, self.name, exec, {})
        self.probe_config = options_of(ProbeConfig, self.name, probe, {})
        self._made: dict[str, SandboxSpec] = {}
        self._commands = asyncio.Semaphore(self.exec_config.concurrency)

    @abstractmethod
    async def _started(self, handle: SandboxHandle, spec: SandboxSpec, config: Config, image: str) -> Ended:
        """Run the command that starts a sandbox. A return code other than 0 means that the start failed."""

    @abstractmethod
    def _inside(self, handle: SandboxHandle) -> list[str]:
        """Return the arguments to put before a command so that it runs in the sandbox and can read stdin."""

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        config = options_of(self.create_options, self.name, self.create_config, spec.provider_options)
        require_program(config.program, self.name)
        image = spec.image or config.image
        if image is None:
            raise SandboxCreateError(f"the provider '{self.name}' needs an image: set `image` in the SandboxSpec.")
        handle = SandboxHandle(f"nemo_gym-{uuid.uuid4().hex[:16]}", self.name)
        # Record the sandbox before its start, because even a failed or cancelled start may have created it.
        self._made[handle.sandbox_id] = spec
        try:
            ended = await self._started(handle, spec, config, rewrite_image(image, config.image_rewrites))
            if ended.return_code != 0:
                why = "it was not ready in time" if ended.is_out_of_time else ended.message
                raise SandboxCreateError(f"{self.name} could not start a sandbox of {image}: {why}")
            start_timeout_s = spec.ready_timeout_s or config.start_timeout_s
            await until_ready(lambda command, s: self._probed(handle, command, s), self.probe_config, start_timeout_s)
        except BaseException:
            await self.close(handle)
            raise
        return handle

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        with opened(source_path) as file:
            await self._write(handle, file, self._resolved(handle, target_path))

    async def _probed(self, handle: SandboxHandle, command: str, timeout_s: float) -> SandboxExecResult:
        return await self.exec(handle, command, timeout_s=timeout_s)

    @asynccontextmanager
    async def _limited(self, timeout_s: float | None) -> AsyncIterator[float | None]:
        """Wait for a free command slot, hold it for the block, and yield the command's timeout."""
        async with self._commands:
            yield self.exec_config.default_timeout_s if timeout_s is None else timeout_s

    async def _write(self, handle: SandboxHandle, file: IO[bytes], path: str) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        await self._must(*self._inside(handle), "sh", "-c", script, "sh", path, stdin=file)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        with written_to(target_path) as file:
            path = self._resolved(handle, source_path)
            await self._must(*self._inside(handle), "cat", "--", path, stdout=file)

    async def aclose(self) -> None:
        for name in sorted(self._made):
            await self.close(SandboxHandle(name, self.name))

    def _resolved(self, handle: SandboxHandle, path: str) -> str:
        """Return a path in the sandbox. A relative path is below the spec's `workdir`, if the spec has one."""
        spec = self._made.get(handle.sandbox_id)
        return path if spec is None else posixpath.join(spec.workdir or "", path)

    async def _quick(self, *words: str) -> Ended:
        return await ran([self.create_config.program, *words], timeout_s=QUICK_S)

    async def _must(self, *words: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> Ended:
        ended = await ran([self.create_config.program, *words], timeout_s=COPY_S, stdin=stdin, stdout=stdout)
        if ended.return_code != 0:
            raise SandboxError(f"{self.name} {words[0]} failed: {ended.message}")
        return ended
