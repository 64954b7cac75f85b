"""The asynchronous and the synchronous sandbox, with a provider that records its calls."""

import asyncio
import threading
from dataclasses import dataclass, field, replace

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
)
from tests.each_case import each_case


@dataclass
class Recorder:
    """A provider that only records its calls."""

    name: str = "recorder"
    calls: list = field(default_factory=list)

    async def create(self, spec):
        self.calls.append(("create", spec))
        return SandboxHandle(f"recorder-{len(self.calls)}", self.name)

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=None, user=None):
        self.calls.append(("exec", handle.sandbox_id, command, cwd, env, timeout_s, user))
        return SandboxExecResult("out", "", 0)

    async def upload_file(self, handle, source_path, target_path):
        self.calls.append(("upload", source_path, target_path))

    async def download_file(self, handle, source_path, target_path):
        self.calls.append(("download", source_path, target_path))

    async def status(self, handle):
        return SandboxStatus.RUNNING

    async def endpoint(self, handle, port):
        return SandboxEndpoint(f"http://sandbox:{port}")

    async def close(self, handle):
        self.calls.append(("close", handle.sandbox_id))

    async def aclose(self):
        self.calls.append(("aclose",))


async def test_calls_reach_provider_with_their_arguments():
    provider = Recorder()
    assert isinstance(provider, SandboxProvider)
    spec = SandboxSpec(image="busybox")
    async with AsyncSandbox(provider, spec) as sandbox:
        assert sandbox.sandbox_id == "recorder-1"
        assert await sandbox.exec("ls", "/tmp", {"A": "b"}, 3, "root") == SandboxExecResult("out", "", 0)
        await sandbox.exec(command=["ls"], timeout_s=None)
        await sandbox.upload("here", "there")
        await sandbox.download(source_path="there", target_path="here")
        assert await sandbox.status() is SandboxStatus.RUNNING
        assert (await sandbox.endpoint(80)).url == "http://sandbox:80"
    assert provider.calls == [
        ("create", spec),
        ("exec", "recorder-1", "ls", "/tmp", {"A": "b"}, 3, "root"),
        ("exec", "recorder-1", ["ls"], None, None, None, None),
        ("upload", "here", "there"),
        ("download", "there", "here"),
        ("close", "recorder-1"),
    ]


async def test_sandbox_can_be_restarted():
    provider = Recorder()
    sandbox = AsyncSandbox(provider)
    with pytest.raises(SandboxError, match=r"call start\(\)"):
        await sandbox.exec("ls")
    assert await sandbox.status() == "stopped"
    assert await sandbox.start({"image": "a"}) is sandbox
    await sandbox.start()
    await sandbox.stop()
    await sandbox.stop()
    await sandbox.start(SandboxSpec(image="b"))
    assert [call[0] for call in provider.calls] == ["create", "close", "create"]
    assert [call[1].image for call in provider.calls if call[0] == "create"] == ["a", "b"]


async def test_spec_metadata_overrides_environment_labels(monkeypatch):
    for name, value in {"NEMO_GYM_TEAM": "ours", "NEMO_GYM_RUN_ID": "7", "SLURM_JOB_ID": "42"}.items():
        monkeypatch.setenv(name, value)
    provider = Recorder()
    await AsyncSandbox(provider, SandboxSpec(metadata={"team": "theirs"})).start()
    labels = provider.calls[0][1].metadata
    assert {"team": "theirs", "run_id": "7", "slurm_job_id": "42"}.items() <= labels.items()


def test_spec_copies_plain_mappings():
    env = {"A": "b"}
    spec = SandboxSpec(env=env, resources={"cpu": 2, "memory_mib": 64}, entrypoint="server")
    env["A"] = "c"
    assert spec.env == {"A": "b"}
    assert spec.resources == SandboxResources(cpu=2, memory_mib=64)
    assert spec.entrypoint == ["server"]
    assert replace(spec, image="x").resources is spec.resources
    assert "s3cret" not in repr(SandboxSpec(env={"TOKEN": "s3cret"}, provider_options={"key": "s3cret"}))


@each_case("wrong", [{"ttl_s": 0}, {"resources": {"memory_mib": -1}}, {"ready_timeout_s": -2}])
def test_spec_rejects_invalid_values(wrong):
    with pytest.raises(ValueError, match="above 0"):
        SandboxSpec(**wrong)


async def test_create_error_has_its_published_import_path():
    from nemo_gym.sandbox.providers import base

    assert base.SandboxCreateError is SandboxCreateError
    assert base.SandboxExecResult is SandboxExecResult


@pytest.mark.needs_bubblewrap
def test_sync_sandbox_works_without_event_loop(tmp_path):
    (tmp_path / "given").write_text("given")
    with Sandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, SandboxSpec(env={"A": "b"})) as sandbox:
        sandbox.upload(tmp_path / "given", "file")
        result = sandbox.exec("cat file; echo $A; exit 4", timeout_s=20)
        assert (result.stdout, result.return_code) == ("givenb\n", 4)
        sandbox.download("file", tmp_path / "back")
        assert sandbox.status() == "running"
        with pytest.raises(SandboxError):
            sandbox.endpoint(80)
    assert (tmp_path / "back").read_text() == "given"
    assert "sandbox" not in [thread.name for thread in threading.enumerate()]
    sandbox.stop()


@pytest.mark.needs_bubblewrap
async def test_sync_sandbox_works_inside_running_loop(tmp_path):
    with Sandbox({"bubblewrap": {"workspaces": str(tmp_path)}}) as sandbox:
        assert sandbox.exec("echo here").stdout == "here\n"
        results = await asyncio.gather(*(asyncio.to_thread(sandbox.exec, f"echo {n}") for n in range(4)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]


def test_failed_sync_sandbox_leaves_no_thread(without_bubblewrap):
    with pytest.raises(SandboxCreateError):
        Sandbox("bubblewrap").start()
    assert "sandbox" not in [thread.name for thread in threading.enumerate()]
