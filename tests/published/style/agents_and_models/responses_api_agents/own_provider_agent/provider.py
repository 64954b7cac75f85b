import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Optional

from nemo_gym.sandbox import SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus, register_provider


class FolderProvider:
    """A folder of this machine per sandbox, for trusted commands."""

    name = "folder"

    def __init__(self, prefix: str = "box-") -> None:
        self._prefix = prefix
        self._envs: dict[str, dict[str, str]] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        folder = tempfile.mkdtemp(prefix=self._prefix)
        self._envs[folder] = {"PATH": "/usr/bin:/bin", **spec.env}
        if spec.workdir:
            self._inside(folder, spec.workdir).mkdir(parents=True)
        return SandboxHandle(sandbox_id=folder, provider_name=self.name, raw=None)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        cwd: Optional[str] = None,
        env: Optional[dict] = None,
        timeout_s: Optional[float] = None,
        user: Optional[str] = None,
    ) -> SandboxExecResult:
        folder = handle.sandbox_id
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command,
            cwd=self._inside(folder, cwd or "/"),
            env={**self._envs[folder], **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await asyncio.wait_for(process.communicate(), timeout_s)
        return SandboxExecResult(stdout=stdout.decode(), stderr=stderr.decode(), return_code=process.returncode)

    async def upload_file(self, handle: SandboxHandle, source_path, target_path: str) -> None:
        target = self._inside(handle.sandbox_id, target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_path, target)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        return SandboxStatus.RUNNING if handle.sandbox_id in self._envs else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        self._envs.pop(handle.sandbox_id, None)
        shutil.rmtree(handle.sandbox_id, ignore_errors=True)

    async def aclose(self) -> None:
        pass

    def _inside(self, folder: str, path: str) -> Path:
        return Path(folder) / path.lstrip("/")


class ConnectableFolderProvider(FolderProvider):
    async def serialize_handle(self, handle: SandboxHandle, *, scope=None) -> dict:
        return {"sandbox_id": handle.sandbox_id, "env": self._envs[handle.sandbox_id], "scope": scope}

    async def connect(self, descriptor: dict) -> SandboxHandle:
        self._envs[descriptor["sandbox_id"]] = descriptor["env"]
        return SandboxHandle(sandbox_id=descriptor["sandbox_id"], provider_name=self.name, raw=None)


register_provider("folder", FolderProvider, override=True)
register_provider("connectable_folder", ConnectableFolderProvider, override=True)
