"""Sandboxes as containers, controlled with the `docker` command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

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
from nemo_gym.sandbox.providers.containers import ContainerProvider
from nemo_gym.sandbox.providers.docker.command import (
    DockerCreateConfig,
    DockerExecConfig,
    environment_options,
    first_command,
    run_options,
)

_NUMBERED = 'echo "nemo_gym-process:$$" >&2; [ -z "$1" ] || cd "$1" || exit 126; shift; exec "$@"'
"""A script that prints its PID and then executes the command under the same PID.

At a timeout, the provider kills the process with this PID. Killing the docker client would not end that process."""
_NUMBER = re.compile(r"^nemo_gym-process:(\d+)\n", re.MULTILINE)
_STATES = {
    "created": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "exited": SandboxStatus.STOPPED,
    # Only podman has this state: the container has ended, but is not cleaned up yet.
    "stopped": SandboxStatus.STOPPED,
}


class DockerProvider(ContainerProvider[DockerCreateConfig, DockerExecConfig]):
    """A provider of containers. Any process that can use the same docker daemon can connect to them."""

    name = "docker"
    create_options = DockerCreateConfig
    exec_options = DockerExecConfig

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
        who = ["--user", str(user)] if user is not None else []
        options = self.exec_config
        with environment_options(env or {}) as variables:
            words = [self.create_config.program, "exec", *who, *variables, *options.extra_exec_args, handle.sandbox_id]
            words += ["sh", "-c", _NUMBERED, "sh", cwd or "", *words_of(command, options.exec_shell)]
            async with self._limited(timeout_s) as limit_s:
                ended = await ran(words, timeout_s=limit_s)
        number = _NUMBER.search(ended.stderr)
        if ended.is_out_of_time and number:
            kill = f"kill -9 -{number[1]} 2>/dev/null || kill -9 {number[1]}"
            await self._quick("exec", "--user", "0", handle.sandbox_id, "sh", "-c", kill)
        return ended.as_result(
            is_lost=number is None and ended.return_code != 0, stderr=_NUMBER.sub("", ended.stderr, 1)
        )

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        ended = await self._quick("inspect", "--format", "{{.State.Status}}", handle.sandbox_id)
        if ended.return_code != 0:
            return SandboxStatus.STOPPED if "no such" in ended.stderr.lower() else SandboxStatus.UNKNOWN
        return _STATES.get(ended.stdout.strip(), SandboxStatus.ERROR)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the URL of the mapped host port, or of the container's own address if the port is not mapped.

        Raise `SandboxError` if the container has no network.
        """
        ended = await self._quick("port", handle.sandbox_id, str(port))
        if ended.return_code == 0 and ended.stdout.strip():
            address = ended.stdout.split()[0].replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
            return SandboxEndpoint(f"http://{address}")
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        ended = await self._must("inspect", "--format", shown, handle.sandbox_id)
        if not ended.stdout.split():
            raise SandboxError(f"port {port} cannot be reached: the container {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://{ended.stdout.split()[0]}:{port}")

    async def serialize_handle(self, handle: SandboxHandle, *, scope: Any = None) -> dict[str, Any]:
        """Return the container's name. `scope` is ignored: everyone who may use the same docker daemon can connect."""
        return {"provider": self.name, "sandbox_id": handle.sandbox_id}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        handle = SandboxHandle(str(descriptor.get("sandbox_id")), self.name)
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxError(
                f"cannot connect to the container {handle.sandbox_id}: it is not running in this docker daemon."
            )
        return handle

    async def close(self, handle: SandboxHandle) -> None:
        ended = await self._quick("rm", "--force", "--volumes", handle.sandbox_id)
        if ended.return_code == 0 or "no such" in ended.stderr.lower():
            self._made.pop(handle.sandbox_id, None)

    async def _started(
        self, handle: SandboxHandle, spec: SandboxSpec, config: DockerCreateConfig, image: str
    ) -> Ended:
        with environment_options(spec.env) as variables:
            options = [*run_options(handle.sandbox_id, spec, config), *variables]
            words = [self.create_config.program, *options, image, *first_command(spec, config)]
            return await ran(words, timeout_s=spec.ready_timeout_s or config.start_timeout_s)

    def _inside(self, handle: SandboxHandle) -> list[str]:
        return ["exec", "-i", handle.sandbox_id]
