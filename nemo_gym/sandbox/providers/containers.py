"""Sandboxes that a program such as `docker` starts and controls: how they start and how files are copied."""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxError,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
)
from nemo_gym.sandbox.providers.commandline import Ended, opened, ran, require_program, written_to
from nemo_gym.sandbox.providers.options import options_of

QUICK_S = 60.0
"""The timeout of calls that only query or remove."""
READY_S = 600.0
"""The timeout of a start, which may fetch the image, and of a copy."""


class CreateConfig(BaseModel):
    """Options of new sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    program: str
    image: str | None = None
    """The default image."""
    image_rewrites: Any = None
    """In a form that `rewrite_image` accepts."""
    extra_args: list[str] = Field(default_factory=list)
    """More options of the command that starts a sandbox."""


Config = TypeVar("Config", bound=CreateConfig)


class ContainerProvider(SandboxProvider, Generic[Config]):
    """A provider that runs a program for each request."""

    def __init__(self, create_config: Config) -> None:
        self.create_config = create_config
        self._made: dict[str, SandboxSpec] = {}

    @abstractmethod
    async def _started(self, handle: SandboxHandle, spec: SandboxSpec, config: Config, image: str) -> Ended:
        """Run the command that starts a sandbox."""

    @abstractmethod
    def _inside(self, handle: SandboxHandle) -> list[str]:
        """Return the arguments that precede a command in the sandbox. The command can read stdin."""

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        config = options_of(type(self.create_config), self.name, self.create_config, spec.provider_options)
        require_program(config.program, self.name)
        image = spec.image or config.image
        if image is None:
            raise SandboxCreateError(f"the provider '{self.name}' needs an image: set `image` in the SandboxSpec.")
        handle = SandboxHandle(f"nemo_gym-{uuid.uuid4().hex[:16]}", self.name)
        # Even a start that failed or was cancelled may have created a sandbox.
        self._made[handle.sandbox_id] = spec
        try:
            ended = await self._started(handle, spec, config, rewrite_image(image, config.image_rewrites))
            if ended.return_code != 0:
                why = "it was not ready in time" if ended.is_out_of_time else ended.message
                raise SandboxCreateError(f"{self.name} could not start a sandbox of {image}: {why}")
            await self._write_files(handle, spec)
        except BaseException:
            await self.close(handle)
            raise
        return handle

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        with opened(source_path) as file:
            await self._write(handle, file, target_path)

    async def _write_files(self, handle: SandboxHandle, spec: SandboxSpec) -> None:
        for path, content in spec.files.items():
            try:
                if isinstance(content, Path):
                    await self.upload_file(handle, content, path)
                    continue
                with tempfile.TemporaryFile() as file:
                    file.write(content.encode() if isinstance(content, str) else content)
                    file.seek(0)
                    await self._write(handle, file, path)
            except SandboxError as error:
                raise SandboxCreateError(f"{path} could not be written in the sandbox: {error}") from error

    async def _write(self, handle: SandboxHandle, file: IO[bytes], path: str) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        await self._must(*self._inside(handle), "sh", "-c", script, "sh", path, stdin=file)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        with written_to(target_path) as file:
            await self._must(*self._inside(handle), "cat", "--", source_path, stdout=file)

    async def aclose(self) -> None:
        for name in sorted(self._made):
            await self.close(SandboxHandle(name, self.name))

    async def _quick(self, *words: str) -> Ended:
        return await ran([self.create_config.program, *words], timeout_s=QUICK_S)

    async def _must(self, *words: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> Ended:
        ended = await ran([self.create_config.program, *words], timeout_s=READY_S, stdin=stdin, stdout=stdout)
        if ended.return_code != 0:
            raise SandboxError(f"{self.name} {words[0]} failed: {ended.message}")
        return ended
