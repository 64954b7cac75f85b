"""Bubblewrap sandboxes. They share this machine's system files, but by default not its processes or network."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym.sandbox.confinement.level import SPARE_UIDS, Level, levels_to_try, refusal, unconfined
from nemo_gym.sandbox.providers.base import (
    LOST,
    LOST_CODE,
    TIMED_OUT,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    words_of,
)
from nemo_gym.sandbox.providers.bubblewrap.command import BubblewrapConfig
from nemo_gym.sandbox.providers.bubblewrap.folders import remove_leftovers
from nemo_gym.sandbox.providers.bubblewrap.start import RunningSandbox, started
from nemo_gym.sandbox.providers.commandline import opened, written_to
from nemo_gym.sandbox.providers.options import options_of

logger = logging.getLogger(__name__)

COPY_S = 600.0
THE_USER = ("root", "sandbox", "0")
"""The names that `exec` accepts for a sandbox's only user. Even as `root`, this user cannot change system files."""


class BubblewrapProvider:
    """A provider of bubblewrap sandboxes. It starts a probe sandbox to find out how far this machine can confine code.

    If sandboxes cannot be confined, `create` raises `SandboxCreateError`, unless `allow_unconfined` is set.
    """

    name = "bubblewrap"

    def __init__(self, config: BubblewrapConfig | Mapping[str, object] | None = None, **options: object) -> None:
        self.config = options_of(BubblewrapConfig, self.name, config, options)
        self._sandboxes: dict[str, RunningSandbox] = {}
        self._uids: set[int | None] = set()
        self._probing = asyncio.Lock()
        self._level: Level | None = None

    async def level(self) -> Level:
        """Return how far sandboxes are confined. The first call starts a probe sandbox to find this out."""
        async with self._probing:
            if self._level is None:
                self._level = await self._probe()
                logger.info("sandboxes run with: %s", self._level)
            return self._level

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a sandbox. The image of the spec is ignored: the sandbox uses this machine's system files."""
        level = await self.level()
        config = self._config_of(spec)
        if not level.is_confined and not config.allow_unconfined:
            raise SandboxCreateError(refusal(level))
        if spec.resources.gpu:
            raise SandboxCreateError("a bubblewrap sandbox has no GPU; leave `gpu` out or choose another provider.")
        if spec.image:
            logger.info("a bubblewrap sandbox has this machine's system instead of the image %s", spec.image)
        handle = SandboxHandle(f"bubblewrap-{uuid.uuid4().hex[:16]}", self.name)
        try:
            self._sandboxes[handle.sandbox_id] = await self._start(spec, config, level)
        except OSError as error:
            raise SandboxCreateError(f"the sandbox cannot be created: {error}") from error
        if spec.entrypoint:
            await self._start_entrypoint(handle, spec.entrypoint)
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
        """Run a command in the sandbox. Its background processes continue until the sandbox is stopped."""
        words = words_of(command)
        sandbox = self._sandboxes.get(handle.sandbox_id)
        if sandbox is None:
            return SandboxExecResult("", "the sandbox has been stopped.", LOST_CODE, LOST)
        if user is not None and str(user) not in (*THE_USER, str(sandbox.uid)):
            raise SandboxError(f"a bubblewrap sandbox has only the user 'sandbox', not '{user}'. Leave `user` out.")
        variables = {**sandbox.env, **{key: str(value) for key, value in (env or {}).items()}}
        folder = None if cwd == sandbox.workdir else cwd
        try:
            reply = await sandbox.process.run(words, variables, cwd=folder, timeout_s=timeout_s)
        except SandboxError as error:
            return SandboxExecResult("", str(error), LOST_CODE, LOST)
        return SandboxExecResult(reply.stdout, reply.stderr, reply.code, TIMED_OUT if reply.is_out_of_time else None)

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the sandbox's workspace. A confined sandbox also allows /tmp and /dev/shm."""
        with opened(source_path) as file:
            await self._sandbox(handle).process.put(file.fileno(), str(target_path), timeout_s=COPY_S)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the sandbox's workspace to a local path. A confined sandbox also allows /tmp and /dev/shm."""
        with written_to(target_path) as file:
            await self._sandbox(handle).process.get(str(source_path), file.fileno(), timeout_s=COPY_S)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return "running", or "stopped" if the sandbox was closed or its `ttl_s` has expired."""
        sandbox = self._sandboxes.get(handle.sandbox_id)
        return SandboxStatus.RUNNING if sandbox and sandbox.process.is_running else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the URL of `port` on this machine. Raise `SandboxError` if the sandbox has its own network."""
        if not self._sandbox(handle).has_network:
            raise SandboxError(
                f"port {port} of the sandbox cannot be reached, because the sandbox has its own network. Use the port "
                "from inside, with `exec`, or set `has_network: true` for its provider."
            )
        return SandboxEndpoint(f"http://127.0.0.1:{port}")

    async def listen(self, handle: SandboxHandle, port: int) -> socket.socket:
        """Return a socket that listens on 127.0.0.1:`port` in the sandbox, for the sandbox's own commands."""
        return await self._sandbox(handle).process.listen(port, timeout_s=COPY_S)

    async def close(self, handle: SandboxHandle) -> None:
        sandbox = self._sandboxes.pop(handle.sandbox_id, None)
        if sandbox is not None:
            await self._end(sandbox)

    async def aclose(self) -> None:
        await asyncio.gather(*(self.close(SandboxHandle(name)) for name in list(self._sandboxes)))

    def _sandbox(self, handle: SandboxHandle) -> RunningSandbox:
        if handle.sandbox_id not in self._sandboxes:
            raise SandboxError("the sandbox has been stopped.")
        return self._sandboxes[handle.sandbox_id]

    def _config_of(self, spec: SandboxSpec) -> BubblewrapConfig:
        """Return the config for a spec. Raise `SandboxCreateError` if the spec would change the confinement."""
        options = dict(spec.provider_options)
        for key in ("allow_unconfined", "has_network", "readable", "scratch", "workspaces"):
            if key in options:
                raise SandboxCreateError(
                    f"'{key}' belongs in the provider's config block, not in the provider_options of a spec."
                )
        limits = {"memory_mib": spec.resources.memory_mib, "pids": spec.resources.pids}
        options |= {key: limit for key, limit in limits.items() if limit is not None}
        return options_of(BubblewrapConfig, self.name, self.config, options)

    async def _probe(self) -> Level:
        await asyncio.to_thread(remove_leftovers, self.config.workspaces)
        problem = None
        for level in await asyncio.to_thread(levels_to_try):
            try:
                sandbox = await self._start(SandboxSpec(), self.config, level)
            except (OSError, SandboxCreateError) as error:
                problem = str(error)
                continue
            await self._end(sandbox)
            return level
        return unconfined(problem)

    async def _start_entrypoint(self, handle: SandboxHandle, words: Sequence[str]) -> None:
        try:
            await self.exec(handle, ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 &', "sh", *words])
        except BaseException:
            await self.close(handle)
            raise

    async def _start(self, spec: SandboxSpec, config: BubblewrapConfig, level: Level) -> RunningSandbox:
        uid = None
        if level.is_confined and os.geteuid() == 0:
            uid = random.choice([uid for uid in SPARE_UIDS if uid not in self._uids])
            self._uids.add(uid)
        try:
            return await started(spec, config, level, uid)
        except BaseException:
            self._uids.discard(uid)
            raise

    async def _end(self, sandbox: RunningSandbox) -> None:
        try:
            await sandbox.end()
        finally:
            self._uids.discard(sandbox.uid)
