"""Sandboxes as containers, controlled through the command line of docker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
from nemo_gym.sandbox.providers.containers import READY_S, ContainerProvider
from nemo_gym.sandbox.providers.docker.command import (
    DockerCreateConfig,
    environment_options,
    first_command,
    run_options,
)
from nemo_gym.sandbox.providers.options import options_of

_NUMBERED = 'echo "nemo_gym-process:$$" >&2; [ -z "$1" ] || cd "$1" || exit 126; shift; exec "$@"'
"""Prints the PID, because killing the docker client does not end the process in the container."""
_NUMBER = re.compile(r"^nemo_gym-process:(\d+)\n", re.MULTILINE)
_STATES = {"running": SandboxStatus.RUNNING, "exited": SandboxStatus.STOPPED, "created": SandboxStatus.PENDING}


class DockerProvider(ContainerProvider[DockerCreateConfig]):
    """A provider of containers. The fields of `create` may also be passed as keyword arguments."""

    name = "docker"

    def __init__(self, create: DockerCreateConfig | Mapping[str, object] | None = None, **options: object) -> None:
        super().__init__(options_of(DockerCreateConfig, self.name, create, options))

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
        with environment_options(env or {}) as variables:
            words = [self.create_config.program, "exec", *who, *variables, handle.sandbox_id]
            words += ["sh", "-c", _NUMBERED, "sh", cwd or "", *words_of(command)]
            ended = await ran(words, timeout_s=timeout_s)
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
        """Return the container's own address, or the port of this machine that `-p` in `extra_args` maps to it."""
        ended = await self._quick("port", handle.sandbox_id, str(port))
        if ended.return_code == 0 and ended.stdout.strip():
            address = ended.stdout.split()[0].replace("0.0.0.0", "127.0.0.1")
            return SandboxEndpoint(f"http://{address}")
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        ended = await self._must("inspect", "--format", shown, handle.sandbox_id)
        if not ended.stdout.split():
            raise SandboxError(f"port {port} cannot be reached: the container {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://{ended.stdout.split()[0]}:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        if handle.sandbox_id in self._made:
            ended = await self._quick("rm", "--force", "--volumes", handle.sandbox_id)
            if ended.return_code == 0 or "no such" in ended.stderr.lower():
                self._made.pop(handle.sandbox_id, None)

    async def _started(
        self, handle: SandboxHandle, spec: SandboxSpec, config: DockerCreateConfig, image: str
    ) -> Ended:
        with environment_options(spec.env) as variables:
            options = [*run_options(handle.sandbox_id, spec, config), *variables]
            words = [self.create_config.program, *options, image, *first_command(spec)]
            return await ran(words, timeout_s=spec.ready_timeout_s or READY_S)

    def _inside(self, handle: SandboxHandle) -> list[str]:
        return ["exec", "-i", handle.sandbox_id]
