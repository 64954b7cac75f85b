"""Sandboxes as containers, controlled through the command line of docker."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from nemo_gym.sandbox.providers.docker.command import (
    DockerCreateConfig,
    environment_options,
    first_command,
    run_options,
)
from nemo_gym.sandbox.providers.options import options_of

QUICK_S = 60.0
"""The timeout of calls that only query or remove."""
READY_S = 600.0
"""The timeout of a start, which may fetch the image."""
_NUMBERED = 'echo "nemo_gym-process:$$" >&2; [ -z "$1" ] || cd "$1" || exit 126; shift; exec "$@"'
"""Prints the PID, because killing the docker client does not end the process in the container."""
_NUMBER = re.compile(r"^nemo_gym-process:(\d+)\n", re.MULTILINE)
_STATES = {"running": SandboxStatus.RUNNING, "exited": SandboxStatus.STOPPED, "created": SandboxStatus.PENDING}


class DockerProvider:
    """A provider of containers. The fields of `create` may also be passed as keyword arguments."""

    name = "docker"

    def __init__(self, create: DockerCreateConfig | Mapping[str, Any] | None = None, **options: Any) -> None:
        self.create_config = options_of(DockerCreateConfig, self.name, create, options)
        self._made: set[str] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a container and wait until docker reports that it runs."""
        config = options_of(DockerCreateConfig, self.name, self.create_config, dict(spec.provider_options))
        require_program(config.program, self.name)
        image = spec.image or config.image
        if image is None:
            raise SandboxCreateError("a docker sandbox needs an image: set `image` in its SandboxSpec.")
        name = f"nemo_gym-{uuid.uuid4().hex[:16]}"
        # Even a start that failed or was cancelled may have created a container.
        self._made.add(name)
        handle = SandboxHandle(name, self.name)
        try:
            with environment_options(spec.env) as variables:
                words = [*run_options(name, spec, config), *variables]
                ended = await self._docker(
                    *words, rewrite_image(image, config.image_rewrites), *first_command(spec),
                    timeout_s=spec.ready_timeout_s or READY_S,
                )  # fmt: skip
        except BaseException:
            await self.close(handle)
            raise
        if ended.return_code != 0:
            await self.close(handle)
            why = "it was not ready in time" if ended.is_out_of_time else ended.message
            raise SandboxCreateError(f"docker could not start a container of {image}: {why}")
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
        who = ["--user", str(user)] if user is not None else []
        with environment_options(env or {}) as variables:
            words = ["exec", *who, *variables, handle.sandbox_id]
            words += ["sh", "-c", _NUMBERED, "sh", cwd or "", *words_of(command)]
            ended = await self._docker(*words, timeout_s=timeout_s)
        number = _NUMBER.search(ended.stderr)
        if ended.is_out_of_time and number:
            kill = f"kill -9 -{number[1]} 2>/dev/null || kill -9 {number[1]}"
            await self._docker("exec", "--user", "0", handle.sandbox_id, "sh", "-c", kill, timeout_s=QUICK_S)
        return ended.as_result(
            is_lost=number is None and ended.return_code != 0, stderr=_NUMBER.sub("", ended.stderr, 1)
        )

    async def upload_file(self, handle: SandboxHandle, source_path: str | Path, target_path: str) -> None:
        """Copy a local file into the container."""
        folder = str(Path(target_path).parent)
        await self._must("exec", handle.sandbox_id, "mkdir", "-p", folder)
        script = ["sh", "-c", 'cat > "$1"', "sh", target_path]
        with opened(source_path) as file:
            await self._must("exec", "-i", handle.sandbox_id, *script, stdin=file)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: str | Path) -> None:
        """Copy a file of the container to a local path."""
        with written_to(target_path) as file:
            await self._must("exec", handle.sandbox_id, "cat", "--", source_path, stdout=file)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the status that docker reports."""
        ended = await self._docker("inspect", "--format", "{{.State.Status}}", handle.sandbox_id, timeout_s=QUICK_S)
        if ended.return_code != 0:
            return SandboxStatus.STOPPED if "no such" in ended.stderr.lower() else SandboxStatus.UNKNOWN
        return _STATES.get(ended.stdout.strip(), SandboxStatus.ERROR)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Return the container's own address, or the port of this machine that `-p` in `extra_args` maps to it."""
        ended = await self._docker("port", handle.sandbox_id, str(port), timeout_s=QUICK_S)
        if ended.return_code == 0 and ended.stdout.strip():
            address = ended.stdout.split()[0].replace("0.0.0.0", "127.0.0.1")
            return SandboxEndpoint(f"http://{address}")
        shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        ended = await self._must("inspect", "--format", shown, handle.sandbox_id)
        if not ended.stdout.split():
            raise SandboxError(f"port {port} cannot be reached: the container {handle.sandbox_id} has no network.")
        return SandboxEndpoint(f"http://{ended.stdout.split()[0]}:{port}")

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the container and its files."""
        if handle.sandbox_id in self._made:
            ended = await self._docker("rm", "--force", "--volumes", handle.sandbox_id, timeout_s=QUICK_S)
            if ended.return_code == 0 or "no such" in ended.stderr.lower():
                self._made.discard(handle.sandbox_id)

    async def aclose(self) -> None:
        for name in sorted(self._made):
            await self.close(SandboxHandle(name, self.name))

    async def _docker(self, *words: str, **how: Any) -> Ended:
        return await ran([self.create_config.program, *words], **how)

    async def _must(self, *words: str, **how: Any) -> Ended:
        ended = await self._docker(*words, timeout_s=READY_S, **how)
        if ended.return_code != 0:
            raise SandboxError(f"docker {words[0]} failed: {ended.message}")
        return ended
