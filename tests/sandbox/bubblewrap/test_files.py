"""Copying files into and out of a bubblewrap sandbox."""

import os

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, SandboxSpec
from tests.each_case import each_case

pytestmark = pytest.mark.needs_bubblewrap


async def test_files_are_uploaded_and_downloaded(sandbox, tmp_path):
    given = tmp_path / "given"
    given.write_bytes(os.urandom(3_000_000))
    given.chmod(0o755)
    await sandbox.upload(given, "deep/er/file")
    assert (await sandbox.exec("test -x deep/er/file && cp deep/er/file /tmp/copy")).return_code == 0
    await sandbox.download("/tmp/copy", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == given.read_bytes()
    await sandbox.upload(str(given), "/workspace/absolute")
    await sandbox.download("./deep/../absolute", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == given.read_bytes()


@each_case("path", ["../etc/passwd", "/etc/passwd", "/script.py", "link", "/proc/1/environ", "/workspace"])
async def test_paths_outside_workspace_are_rejected(sandbox, tmp_path, path):
    await sandbox.exec("ln -s /etc/passwd link; ln -s /usr folder")
    (tmp_path / "given").write_text("x")
    with pytest.raises(SandboxError, match="is outside the folders"):
        await sandbox.download(path, tmp_path / "out")
    with pytest.raises(SandboxError, match="is outside the folders"):
        await sandbox.upload(tmp_path / "given", path)
    with pytest.raises(SandboxError, match="outside"):
        await sandbox.upload(tmp_path / "given", "folder/file")
    assert not (tmp_path / "out").exists()


async def test_only_regular_files_are_copied(sandbox, tmp_path):
    await sandbox.exec("mkfifo fifo; mkdir folder; ln -s /dev/shm/nothing dangling")
    for path, why in (("fifo", "is not a file"), ("folder", "not a file|directory"), ("missing", "No such file")):
        with pytest.raises(SandboxError, match=why):
            await sandbox.download(path, tmp_path / "out")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SandboxError, match="cannot be copied into a sandbox"):
            await sandbox.upload(path, "file")
    with pytest.raises(SandboxError, match="is a folder"):
        await sandbox.download("missing", tmp_path)


async def test_scratch_folders_are_empty_and_writable(tmp_path):
    (tmp_path / "given").write_text("x")
    provider = {"bubblewrap": {"scratch": ["/logs"], "workspaces": str(tmp_path)}}
    async with AsyncSandbox(provider, SandboxSpec()) as sandbox:
        assert (await sandbox.exec("ls -A /logs")).stdout == ""
        await sandbox.upload(tmp_path / "given", "/logs/deep/file")
        assert (await sandbox.exec("cat /logs/deep/file && cp /logs/deep/file /logs/copy")).stdout == "x"
        await sandbox.download("/logs/copy", tmp_path / "copy")
        assert (await sandbox.exec("touch /other")).return_code != 0
    with pytest.raises(SandboxCreateError, match="'scratch' belongs in the provider's config block"):
        await AsyncSandbox({"bubblewrap": {}}, SandboxSpec(provider_options={"scratch": ["/etc"]})).start()
