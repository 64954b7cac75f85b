"""Play task folders with Harbor's trials, agents and verifier. Their environment is a sandbox of bubblewrap.

`python harbor_trials.py AGENT FOLDER…` needs an interpreter that has Harbor. It prints a JSON object: the name, the
instruction, the rewards and the error of each folder's task.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

FOLDERS = ("app", "logs", "tests", "solution", "tmp", "installed-agent")


class Bubblewrap(BaseEnvironment):
    """The folders of one task, bound into a sandbox for each command."""

    @staticmethod
    def type() -> str:
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="nemo_gym-harbor-"))

    async def start(self, force_build: bool) -> None:
        files = self.environment_dir / "files"
        shutil.copytree(files if files.is_dir() else self.environment_dir, self.root / "app")
        for name in (*FOLDERS, "logs/agent", "logs/verifier", "logs/artifacts"):
            (self.root / name).mkdir(exist_ok=True)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root)

    def _at(self, path: str) -> Path:
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._at(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._at(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._at(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._at(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._at(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"):
            words += ["--ro-bind-try", folder, folder]
        for name in FOLDERS:
            words += ["--bind", str(self.root / name), f"/{name}"]
        for key, value in {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", **(env or {})}.items():
            words += ["--setenv", key, value]
        words += ["--chdir", cwd or "/app", "bash", "-c", command]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=timeout_sec)
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)


async def played(agent: str, folder: Path, trials: Path) -> dict[str, object]:
    config = TrialConfig(
        task=TaskConfig(path=folder),
        trials_dir=trials,
        agent=AgentConfig(name=agent),
        environment=EnvironmentConfig(import_path="harbor_trials:Bubblewrap"),
    )
    trial = await Trial.create(config)
    result = await trial.run()
    error = result.exception_info.exception_type if result.exception_info else None
    rewards = result.verifier_result.rewards if result.verifier_result else None
    return {"name": trial.task.name, "instruction": trial.task.instruction, "rewards": rewards, "error": error}


async def main(agent: str, *folders: str) -> None:
    with tempfile.TemporaryDirectory() as trials:
        found = {folder: await played(agent, Path(folder), Path(trials)) for folder in folders}
    print(json.dumps(found))  # noqa: T201 - the output of a program


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
