"""Sandboxes as apptainer instances, controlled through its command line."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    words_of,
)
from nemo_gym.sandbox.providers.commandline import Ended, opened, ran, require_program, written_to
from nemo_gym.sandbox.providers.options import options_of

QUICK_S = 60.0
READY_S = 600.0
FAILED_CODE = 255
"""The exit code of apptainer's own failures; a command may exit with it too."""


class ApptainerCreateConfig(BaseModel):
    """Options of new instances."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    program: str = "apptainer"
    """Or singularity, which has the same command line."""
    image: str | None = None
    """The default image: a file, a folder, or a URL such as docker://…"""
    image_rewrites: Any = None
    """In a form that `rewrite_image` accepts."""
    has_network: bool = True
    """False requires permission to create network namespaces."""
    is_writable: bool = True
    """Whether all files are writable for the instance's lifetime; otherwise only /tmp and the home folder are."""
    binds: list[str] = Field(default_factory=list)
    extra_args: list[str] = Field(default_factory=list)
    """More options of `apptainer instance start`."""


class ApptainerProvider:
    """A provider of apptainer instances. The fields of `create` may also be passed as keyword arguments."""

    name = "apptainer"

    def __init__(self, create: ApptainerCreateConfig | Mapping[str, Any] | None = None, **options: Any) -> None:
        self.create_config = options_of(ApptainerCreateConfig, self.name, create, options)
        self._made: dict[str, SandboxSpec] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        config = options_of(ApptainerCreateConfig, self.name, self.create_config, dict(spec.provider_options))
        require_program(config.program, self.name)
        image = spec.image or config.image
        if image is None:
            raise SandboxCreateError("an apptainer sandbox needs an image: set `image` in its SandboxSpec.")
        handle = SandboxHandle(f"nemo_gym-{uuid.uuid4().hex[:16]}", self.name)
        self._made[handle.sandbox_id] = spec
        words = [*_start_options(spec, config), rewrite_image(image, config.image_rewrites), handle.sandbox_id]
        try:
            ended = await self._apptainer(
                "instance", "start", *words, env=_variables(spec.env), timeout_s=spec.ready_timeout_s or READY_S
            )
        except BaseException:
            await self.close(handle)
            raise
        if ended.return_code != 0:
            await self.close(handle)
            why = "it was not ready in time" if ended.is_out_of_time else ended.message
            raise SandboxCreateError(f"apptainer could not start an instance of {image}: {why}")
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
        ended = await self._apptainer(
            "exec", *where, _address(handle), *words_of(command),
            env=_variables({**spec.env, **(env or {})}), timeout_s=timeout_s,
        )  # fmt: skip
        return ended.as_result(is_lost=ended.return_code == FAILED_CODE and "FATAL:" in ended.stderr)

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the instance."""
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        with opened(source_path) as file:
            await self._must("exec", _address(handle), "sh", "-c", script, "sh", target_path, stdin=file)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the instance to a local path."""
        with written_to(target_path) as file:
            await self._must("exec", _address(handle), "cat", "--", source_path, stdout=file)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return running if apptainer lists the instance."""
        ended = await self._apptainer("instance", "list", handle.sandbox_id, timeout_s=QUICK_S)
        if ended.return_code != 0:
            return SandboxStatus.UNKNOWN
        return SandboxStatus.RUNNING if handle.sandbox_id in ended.stdout.split() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the same port of this machine, whose network the instance shares."""
        if not self.create_config.has_network:
            raise SandboxError(f"port {port} cannot be reached: the instance {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance and discard its files."""
        end = self._ends.pop(handle.sandbox_id, None)
        if end is not None and end is not asyncio.current_task():
            end.cancel()
        if self._made.pop(handle.sandbox_id, None) is not None:
            await self._apptainer("instance", "stop", "--force", handle.sandbox_id, timeout_s=QUICK_S)

    async def aclose(self) -> None:
        for name in sorted(self._made):
            await self.close(SandboxHandle(name, self.name))

    async def _close_after(self, handle: SandboxHandle, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await self.close(handle)

    async def _apptainer(self, *words: str, **how: Any) -> Ended:
        return await ran([self.create_config.program, *words], **how)

    async def _must(self, *words: str, **how: Any) -> Ended:
        ended = await self._apptainer(*words, timeout_s=READY_S, **how)
        if ended.return_code != 0:
            raise SandboxError(f"apptainer {words[0]} failed: {ended.message}")
        return ended


def _address(handle: SandboxHandle) -> str:
    return f"instance://{handle.sandbox_id}"


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the sandbox's variables with the prefix under which apptainer reads them from its own environment."""
    return {f"APPTAINERENV_{key}": str(value) for key, value in env.items()}


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
