"""Sandboxes that are instances of apptainer, made and worked in through its command line."""

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
"""Of apptainer itself, as of any command that cares to end so."""


class ApptainerCreateConfig(BaseModel):
    """How instances are made."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    program: str = "apptainer"
    """Or singularity, whose command line is the same."""
    image: str | None = None
    """For a spec without one: a file, a folder, or a place such as docker://…"""
    image_rewrites: Any = None
    """As `rewrite_image` takes them."""
    has_network: bool = True
    """False needs the right to make network namespaces."""
    is_writable: bool = True
    """Whether all of its files may be written, for its lifetime; otherwise /tmp and the home folder only."""
    binds: list[str] = Field(default_factory=list)
    extra_args: list[str] = Field(default_factory=list)
    """More options of `apptainer instance start`."""


class ApptainerProvider:
    """Makes instances. `create` tells how; its fields may also be given by themselves."""

    name = "apptainer"

    def __init__(self, create: ApptainerCreateConfig | Mapping[str, Any] | None = None, **options: Any) -> None:
        self.create_config = options_of(ApptainerCreateConfig, self.name, create, options)
        self._made: dict[str, SandboxSpec] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance."""
        config = options_of(ApptainerCreateConfig, self.name, self.create_config, dict(spec.provider_options))
        require_program(config.program, self.name)
        image = spec.image or config.image
        if image is None:
            raise SandboxCreateError("a sandbox of apptainer needs an image: set `image` of its SandboxSpec.")
        handle = SandboxHandle(f"nemo_gym-{uuid.uuid4().hex[:16]}", self.name)
        self._made[handle.sandbox_id] = spec
        words = [*_start_options(spec, config), rewrite_image(image, config.image_rewrites), handle.sandbox_id]
        try:
            told = await self._apptainer(
                "instance", "start", *words, env=_variables(spec.env), timeout_s=spec.ready_timeout_s or READY_S
            )
        except BaseException:
            await self.close(handle)
            raise
        if told.return_code != 0:
            await self.close(handle)
            why = "it was not ready in time" if told.is_out_of_time else told.last_words
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
        """Run a command in the instance; there is one user, whoever is asked for."""
        spec = self._made.get(handle.sandbox_id, SandboxSpec())
        folder = cwd or spec.workdir
        where = ["--pwd", folder] if folder else []
        told = await self._apptainer(
            "exec", *where, _address(handle), *words_of(command),
            env=_variables({**spec.env, **(env or {})}), timeout_s=timeout_s,
        )  # fmt: skip
        return told.as_result(is_lost=told.return_code == FAILED_CODE and "FATAL:" in told.stderr)

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the instance."""
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        with opened(source_path) as file:
            await self._must("exec", _address(handle), "sh", "-c", script, "sh", target_path, stdin=file)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the instance here."""
        with written_to(target_path) as file:
            await self._must("exec", _address(handle), "cat", "--", source_path, stdout=file)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Whether apptainer lists the instance."""
        told = await self._apptainer("instance", "list", handle.sandbox_id, timeout_s=QUICK_S)
        if told.return_code != 0:
            return SandboxStatus.UNKNOWN
        return SandboxStatus.RUNNING if handle.sandbox_id in told.stdout.split() else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """The port of this machine: an instance shares its network."""
        if not self.create_config.has_network:
            raise SandboxError(f"port {port} cannot be reached: the instance {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance; what was written in it is lost."""
        end = self._ends.pop(handle.sandbox_id, None)
        if end is not None and end is not asyncio.current_task():
            end.cancel()
        if self._made.pop(handle.sandbox_id, None) is not None:
            await self._apptainer("instance", "stop", "--force", handle.sandbox_id, timeout_s=QUICK_S)

    async def aclose(self) -> None:
        """Stop all instances."""
        for name in sorted(self._made):
            await self.close(SandboxHandle(name, self.name))

    async def _close_after(self, handle: SandboxHandle, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await self.close(handle)

    async def _apptainer(self, *words: str, **how: Any) -> Ended:
        return await ran([self.create_config.program, *words], **how)

    async def _must(self, *words: str, **how: Any) -> Ended:
        told = await self._apptainer(*words, timeout_s=READY_S, **how)
        if told.return_code != 0:
            raise SandboxError(f"apptainer {words[0]} failed: {told.last_words}")
        return told


def _address(handle: SandboxHandle) -> str:
    return f"instance://{handle.sandbox_id}"


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """Variables of the sandbox, as apptainer takes them from its own environment."""
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
