"""One rollout of a program: its sandbox, its files, its run, and the files that it leaves."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from nemo_gym.errors import AgentFailed, InvalidTask
from nemo_gym.harness.gateway import Gateway
from nemo_gym.harness.program import Program
from nemo_gym.harness.workspace import Limits, Workspace, filled_in
from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxProvider, SandboxSpec

logger = logging.getLogger(__name__)

PLACEHOLDER = "the-gateway-needs-no-key"
"""The API key of programs, because API clients need one. The gateway's address is the actual secret."""


class Done(NamedTuple):
    """The result of a program and the files that it left, as JSON for the verifier and the results."""

    program: Mapping[str, object]
    workspace: Mapping[str, object]


@dataclass(frozen=True)
class Work:
    """A program with the files of its task, and the settings for collecting and keeping the files that it leaves."""

    program: Program
    files: Mapping[str, str]
    """The text of each of the task's own files, by its path in the workspace."""
    collects: Sequence[str]
    limits: Limits
    keeps: Literal["never", "failed", "always"]
    kept_at: Path
    """The path of the tar archive in which a workspace is kept."""

    async def done(
        self, provider: SandboxProvider, spec: SandboxSpec, gateway: Gateway, gateway_host: str | None, prompt: str
    ) -> Done:
        """Run the program in a new sandbox, and always remove the sandbox at the end.

        Raise `AgentFailed` if the program or its sandbox fails, `InvalidTask` if a file of the task cannot be written,
        and the failure of a tool call or of the last model call if that call failed.
        """
        async with AsyncSandbox(provider) as sandbox:
            try:
                await sandbox.start(spec)
            except SandboxError as error:
                raise AgentFailed(f"the program's sandbox could not be created: {error}") from error
            workspace = Workspace(sandbox, self.collects, self.limits)
            try:
                async with _listening(sandbox, gateway, gateway_host) as url:
                    values = {
                        "prompt": prompt,
                        "model": gateway.model_name,
                        "openai_base_url": f"{url}/v1",
                        "anthropic_base_url": url,
                        "gemini_base_url": url,
                        "api_key": PLACEHOLDER,
                        "mcp_url": f"{url}/mcp" if gateway.tools else "",
                        "workdir": spec.workdir or "",
                    }
                    await self._fill(workspace, values)
                    ran = await self.program.run(sandbox, gateway, values)
            except BaseException:
                if self.keeps != "never":
                    await self._keep_failed(workspace)
                raise
            collected = await workspace.collect(self.kept_at if self.keeps == "always" else None)
        return Done(
            {**asdict(ran), "model_calls": gateway.calls}, collected.model_dump(mode="json", exclude_defaults=True)
        )

    async def _fill(self, workspace: Workspace, values: Mapping[str, str]) -> None:
        """Write the program's files with the values filled in, and the task's files unchanged.

        Raise `InvalidTask` if a file of the task cannot be written into the workspace.
        """
        try:
            for path, content in self.program.files.items():
                await workspace.write(path, _filled_in(content, values))
        except SandboxError as error:
            raise AgentFailed(f"a file of the program could not be written: {error}") from error
        for path, text in self.files.items():
            try:
                await workspace.write(path, text.encode())
            except SandboxError as error:
                if not await workspace.is_there():
                    raise AgentFailed(f"the program's sandbox was lost: {error}") from error
                raise InvalidTask(
                    f"workspace_files: {path!r} cannot be written into the workspace: {error}"
                ) from error

    async def _keep_failed(self, workspace: Workspace) -> None:
        try:
            await workspace.collect(self.kept_at)
        except AgentFailed as error:
            # Only log this problem, so that the failure of the program is raised instead.
            logger.warning("the workspace of a failed program could not be saved: %s", error)


@asynccontextmanager
async def _listening(sandbox: AsyncSandbox, gateway: Gateway, gateway_host: str | None) -> AsyncIterator[str]:
    """Serve the gateway where the sandbox's commands can reach it, and yield its address.

    If the provider can listen inside its sandboxes, the sandboxes do not need a network. Otherwise serve at
    `gateway_host`, an address of this machine that the sandboxes can reach.
    """
    listener, host = await sandbox.listen(), "127.0.0.1"
    if listener is None:
        if gateway_host is None:
            raise AgentFailed(
                f"the provider {sandbox.provider.name} cannot listen inside its sandboxes. Set gateway_host to an "
                "address of this machine that they can reach."
            )
        listener, host = _listener_at(gateway_host), gateway_host
    async with gateway.serving(listener, host) as url:
        yield url


def _listener_at(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0))
    except OSError as error:
        raise AgentFailed(
            f"gateway_host: nothing can listen at {host} ({error.strerror}). Set it to an address of this machine "
            "that the sandboxes can reach."
        ) from error


def _filled_in(content: bytes, values: Mapping[str, str]) -> bytes:
    try:
        return filled_in(content.decode(), values).encode()
    except UnicodeDecodeError:
        return content
