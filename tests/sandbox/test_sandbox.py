"""The asynchronous and the synchronous sandbox, with a provider that records its calls."""

import asyncio
import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    ConnectableProvider,
    Sandbox,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxError,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
    register_provider,
)

pytestmark = pytest.mark.bare


@dataclass
class Plain:
    """A provider that only records its calls, with the required methods alone."""

    name: str = "recorder"
    calls: list = field(default_factory=list)
    failure: Exception | None = None

    async def create(self, spec):
        self.calls.append(("create", spec))
        return SandboxHandle(f"recorder-{len(self.calls)}", self.name)

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=None, user=None):
        self.calls.append(("exec", handle.sandbox_id, command, cwd, env, timeout_s, user))
        return SandboxExecResult("out", "", 0)

    async def upload_file(self, handle, source_path, target_path):
        is_local = isinstance(source_path, Path)
        self.calls.append(("upload", source_path.read_bytes() if is_local else source_path, target_path))
        if self.failure:
            raise self.failure

    async def download_file(self, handle, source_path, target_path):
        self.calls.append(("download", source_path, target_path))

    async def status(self, handle):
        return SandboxStatus.RUNNING

    async def close(self, handle):
        self.calls.append(("close", handle.sandbox_id))

    async def aclose(self):
        self.calls.append(("aclose",))


class Recorder(Plain):
    """A provider whose sandboxes can be reached over the network and from other processes."""

    async def endpoint(self, handle, port):
        return SandboxEndpoint(f"http://sandbox:{port}")

    def serialize_handle(self, handle, *, scope=None):
        return {"sandbox_id": handle.sandbox_id, "scope": scope}

    async def connect(self, descriptor):
        self.calls.append(("connect", descriptor["sandbox_id"]))
        if self.failure:
            raise self.failure
        return SandboxHandle(descriptor["sandbox_id"])


@pytest.fixture
def registered():
    register_provider("test-recorder", Recorder, override=True)


async def test_calls_reach_provider_with_their_arguments():
    provider = Recorder()
    assert isinstance(provider, SandboxProvider)
    spec = SandboxSpec(image="busybox", ports=[80])
    async with AsyncSandbox(provider, spec) as sandbox:
        assert sandbox.sandbox_id == sandbox._handle.sandbox_id == "recorder-1"
        assert await sandbox.exec("ls", "/tmp", {"A": "b"}, 3, "root") == SandboxExecResult("out", "", 0)
        await sandbox.exec(command=["ls"], cwd=None, env=None, timeout_s=None, user=None)
        await sandbox.exec("ls")
        await sandbox.upload(local_path="here", remote_path="there")
        await sandbox.download(remote_path="there", local_path="here")
        assert await sandbox.status() is SandboxStatus.RUNNING
        assert (await sandbox.endpoint(80)).endpoint == "http://sandbox:80"
    assert provider.calls == [
        ("create", spec),
        ("exec", "recorder-1", "ls", "/tmp", {"A": "b"}, 3, "root"),
        ("exec", "recorder-1", ["ls"], None, None, None, None),
        ("exec", "recorder-1", "ls", None, None, 180, None),
        ("upload", "here", "there"),
        ("download", "there", "here"),
        ("close", "recorder-1"),
    ]


async def test_sandbox_without_spec_starts_when_given_one():
    provider = Recorder()
    async with AsyncSandbox(provider) as sandbox:
        assert provider.calls == []
        assert await sandbox.status() is SandboxStatus.UNKNOWN
        with pytest.raises(SandboxError, match=r"call start\(\)"):
            await sandbox.exec("ls")
        with pytest.raises(ValueError, match="needs a spec"):
            await sandbox.start()
        assert await sandbox.start({"image": "a"}) is sandbox
        await sandbox.start()
    assert [call[0] for call in provider.calls] == ["create", "close"]


async def test_each_sandbox_starts_only_once():
    provider = Recorder()
    sandbox = await AsyncSandbox(provider, {"image": "a"}).start()
    with pytest.raises(RuntimeError, match="already started"):
        await sandbox.start({"image": "b"})
    await sandbox.stop()
    await sandbox.stop()
    assert await sandbox.status() is SandboxStatus.STOPPED
    with pytest.raises(RuntimeError, match="was stopped"):
        await sandbox.start()
    assert [call[0] for call in provider.calls] == ["create", "close"]


async def test_files_and_workdir_reach_any_provider(tmp_path):
    (tmp_path / "local").write_text("from a file")
    provider = Plain()
    files = {"a.txt": "text", "/b": b"\x00", "c": tmp_path / "local"}
    async with AsyncSandbox(provider, SandboxSpec(files=files, workdir="/work")) as sandbox:
        await sandbox.exec("ls")
        await sandbox.exec("ls", cwd="/tmp")
    assert provider.calls[1:4] == [
        ("upload", b"text", "a.txt"), ("upload", b"\x00", "/b"), ("upload", b"from a file", "c"),
    ]  # fmt: skip
    assert [call[3] for call in provider.calls if call[0] == "exec"] == ["/work", "/tmp"]


@pytest.mark.parametrize(
    ("failure", "raised"), [(SandboxError("full"), SandboxCreateError), (OSError("full"), OSError)]
)
async def test_file_that_cannot_be_written_ends_sandbox(registered, failure, raised):
    sandbox = AsyncSandbox({"test-recorder": {"failure": failure}}, SandboxSpec(files={"a": "text"}))
    with pytest.raises(raised, match="full"):
        await sandbox.start()
    assert [call[0] for call in sandbox.provider.calls] == ["create", "upload", "close", "aclose"]
    with pytest.raises(RuntimeError, match="was stopped"):
        await sandbox.start()


async def test_passed_provider_object_stays_open():
    provider = Plain(failure=SandboxError("full"))
    with pytest.raises(SandboxCreateError):
        await AsyncSandbox(provider, SandboxSpec(files={"a": "text"})).start()
    assert [call[0] for call in provider.calls] == ["create", "upload", "close"]


async def test_endpoints_need_a_declared_port():
    async with AsyncSandbox(Recorder(), SandboxSpec(ports=(80, "81"))) as sandbox:
        assert (await sandbox.endpoint(81)).endpoint == "http://sandbox:81"
        for port in (82, 0, 65_536, True, "80"):
            with pytest.raises(ValueError, match="port"):
                await sandbox.endpoint(port)
    async with AsyncSandbox(Plain(), SandboxSpec(ports=[80])) as sandbox:
        assert not isinstance(sandbox.provider, SupportsSandboxEndpoint)
        with pytest.raises(NotImplementedError, match="'recorder' does not have the method"):
            await sandbox.endpoint(80)


async def test_another_process_can_connect_to_sandbox():
    provider = Recorder()
    assert isinstance(provider, ConnectableProvider)
    sandbox = await AsyncSandbox(provider, SandboxSpec(workdir="/work", ports=[80])).start()
    descriptor = json.loads(json.dumps(await sandbox.serialize(scope="agent")))
    assert descriptor == {"sandbox_id": "recorder-1", "scope": "agent", "workdir": "/work", "ports": [80]}
    connected = await AsyncSandbox.connect(descriptor, provider=provider)
    await connected.exec("ls")
    assert (await connected.endpoint(80)).endpoint == "http://sandbox:80"
    await connected.stop()
    assert provider.calls[1:] == [
        ("connect", "recorder-1"), ("exec", "recorder-1", "ls", "/work", None, 180, None), ("close", "recorder-1"),
    ]  # fmt: skip
    minimal = await AsyncSandbox.connect({"sandbox_id": "x"}, provider=provider)
    assert minimal.sandbox_id == "x"


async def test_only_some_providers_share_their_sandboxes(registered):
    async with AsyncSandbox(Plain(), {}) as sandbox:
        with pytest.raises(RuntimeError, match="only be used by the process"):
            await sandbox.serialize()
    with pytest.raises(RuntimeError, match="only be used by the process"):
        await AsyncSandbox.connect({"sandbox_id": "x"}, provider=Plain())
    with pytest.raises(TypeError, match="serialize"):
        await AsyncSandbox.connect("recorder-1", provider=Recorder())
    calls = []
    with pytest.raises(SandboxError, match="gone"):
        await AsyncSandbox.connect(
            {"sandbox_id": "x"}, provider={"test-recorder": {"calls": calls, "failure": SandboxError("gone")}}
        )
    assert calls == [("connect", "x"), ("aclose",)]


async def test_spec_metadata_overrides_environment_labels(monkeypatch):
    for name, value in {"NEMO_GYM_TEAM": "ours", "NEMO_GYM_RUN_ID": "7", "SLURM_JOB_ID": "42"}.items():
        monkeypatch.setenv(name, value)
    provider = Recorder()
    await AsyncSandbox(provider, SandboxSpec(metadata={"team": "theirs"})).start()
    labels = provider.calls[0][1].metadata
    assert {"team": "theirs", "run_id": "7", "slurm_job_id": "42"}.items() <= labels.items()


async def test_create_error_has_its_published_import_path():
    from nemo_gym.sandbox.providers import base

    assert base.SandboxCreateError is SandboxCreateError
    assert base.SandboxExecResult is SandboxExecResult


@pytest.mark.needs_bubblewrap
def test_sync_sandbox_works_without_event_loop(tmp_path):
    (tmp_path / "given").write_text("given")
    with Sandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, SandboxSpec(env={"A": "b"}, ports=[80])) as sandbox:
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
    with Sandbox({"bubblewrap": {"workspaces": str(tmp_path)}}, {}) as sandbox:
        assert sandbox.exec("echo here").stdout == "here\n"
        results = await asyncio.gather(*(asyncio.to_thread(sandbox.exec, f"echo {n}") for n in range(4)))
        assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]


def test_failed_sync_sandbox_leaves_no_thread(without_bubblewrap):
    with pytest.raises(SandboxCreateError):
        Sandbox("bubblewrap").start({})
    assert "sandbox" not in [thread.name for thread in threading.enumerate()]
