"""podman and buildah with a storage of their own, so that tests touch no other image, container or network."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
BASE_ENV_VAR = "DEBIAN_ROOTFS"
"""The archive of a Debian root file system, if `.ci/run` has made one for several uses."""
PROGRAMS = ("podman", "podman-compose", "buildah", "runc", "iptables")
PATIENCE_S = 200.0
BUILD_S = 400.0
# Within the limits of any host, because not every one has the right to raise them.
SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "{runc}"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{folder}/networks"
"""
STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


class Engine:
    """A container engine whose files are below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "networks").mkdir()
        runc = shutil.which("runc")
        (folder / "containers.conf").write_text(SETTINGS.format(folder=folder, runc=runc))
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("NEMO_GYM")}
        self.env["CONTAINERS_CONF"] = str(folder / "containers.conf")
        self.env["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")

    def podman(self, *words: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run podman to its end."""
        return self.run("podman", *words, timeout_s=timeout_s)

    def run(self, *words: str, timeout_s: float = PATIENCE_S, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program on the engine's storage."""
        return subprocess.run(
            words, env=self.env | env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self.folder
        )

    def must(self, *words: str, timeout_s: float = PATIENCE_S, **env: str) -> str:
        """Return the output of a program that has to succeed."""
        ended = self.run(*words, timeout_s=timeout_s, **env)
        assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout

    def inspect(self, name: str, template: str) -> str:
        return self.must("podman", "inspect", "--format", template, name).strip()

    def logs(self, name: str) -> str:
        ended = self.podman("logs", name)
        return ended.stdout + ended.stderr

    def wait_for(self, what: str, is_there: Callable[[], bool], *containers: str) -> None:
        """Poll until a condition holds. The failure shows the logs of these containers."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}: {self.logs(name)[-2000:]}" for name in containers)
                raise AssertionError(f"no {what} within {PATIENCE_S:g} s.\n{logs}")
            time.sleep(0.1)

    def is_healthy(self, name: str) -> bool:
        """Run a container's health check once. Without systemd, podman does not run it by itself."""
        return self.podman("healthcheck", "run", name).returncode == 0

    def close(self) -> None:
        self.podman("rm", "--force", "--all", "--time", "0")
        for network in self.podman("network", "ls", "--quiet", "--filter", "driver=bridge").stdout.split():
            if network != "podman":
                self.podman("network", "rm", network)


def problem() -> str | None:
    """Return why containers cannot be tested here, or None."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if not os.environ.get(BASE_ENV_VAR) and shutil.which("mmdebstrap") is None:
        missing.append("mmdebstrap")
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "containers need root here" if os.geteuid() else None


@contextmanager
def engine_with_base(folder: Path) -> Iterator[Engine]:
    """Yield an engine with the image `ngc-base`, a Debian with Python. Skip the tests if there cannot be one."""
    if reason := problem():
        pytest.skip(reason)
    engine = Engine(folder)
    try:
        archive = os.environ.get(BASE_ENV_VAR) or _debian(folder / "base.tar")
        engine.must("podman", "import", archive, "ngc-base", timeout_s=BUILD_S)
        started = engine.podman("run", "--rm", "ngc-base", "true")
        if started.returncode != 0:
            pytest.skip(f"podman starts no container here: {started.stderr[-500:]}")
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def _debian(archive: Path) -> str:
    subprocess.run([REPOSITORY / ".ci" / "rootfs", archive], check=True, timeout=BUILD_S)
    return str(archive)
