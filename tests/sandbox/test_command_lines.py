"""The docker and apptainer providers, tested with fake programs that record their arguments."""

import re
import time
from pathlib import Path

import pytest
import uvloop

from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxError, SandboxSpec
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProvider
from tests.conftest import PATIENCE_S
from tests.sandbox.fake_programs import Fake

pytestmark = pytest.mark.slow


@pytest.fixture
def docker(tmp_path, monkeypatch):
    return Fake(tmp_path, "docker", monkeypatch)


@pytest.fixture
def apptainer(tmp_path, monkeypatch):
    return Fake(tmp_path, "apptainer", monkeypatch)


SPEC = SandboxSpec(
    image="docker.io/busybox:1",
    workdir="/work",
    env={"TOKEN": "s3cret", "LINES": "a\nb"},
    metadata={"task": "7"},
    resources={"cpu": 1.5, "memory_mib": 64, "pids": 9, "gpu": 1},
    ttl_s=60,
    ports=[80, 81],
)


async def test_container_follows_spec_and_options(docker):
    provider = DockerProvider(
        create=DockerCreateConfig(network="none", image_rewrites={"docker.io/": "mirror/"}, extra_run_args=["--tty"])
    )
    async with AsyncSandbox(provider, SPEC) as sandbox:
        name = sandbox.sandbox_id
    words, files, _ = docker.calls[0]
    line = " ".join(words)
    assert words[:3] == ["run", "--detach", "--init"]
    for part in (
        f"--name {name}",
        "--network none",
        "--workdir /work",
        "--cpus 1.5",
        "--memory 64m",
        "--pids-limit 9",
        "--gpus 1",
        "--label nemo_gym.task=7",
        "--tty",
        "--publish 127.0.0.1::80 --publish 127.0.0.1::81",
    ):
        assert part in line
    assert words[words.index("mirror/busybox:1") + 1 :][:2] == ["sh", "-c"]
    assert words[words.index("mirror/busybox:1") + 4] == "60"
    # Secrets must not be on the command line, which every user can read.
    assert "s3cret" not in line
    assert files == ["TOKEN=s3cret\n"]
    assert docker.calls[-1][0] == ["rm", "--force", "--volumes", name]


async def test_container_runs_commands_and_copies_files(docker, tmp_path):
    async with AsyncSandbox("docker", SandboxSpec(image="x")) as sandbox:
        result = await sandbox.exec("echo out; echo err >&2; pwd; exit 3", cwd=str(tmp_path), user=7, env={"A": "b"})
        assert (result.stdout, result.stderr, result.return_code) == (f"out\n{tmp_path}\n", "err\n", 3)
        assert (await sandbox.exec(["printf", "%s", "a b"])).stdout == "a b"
        (tmp_path / "given").write_bytes(b"\x00given")
        await sandbox.upload(tmp_path / "given", f"{tmp_path}/in/side")
        await sandbox.download(f"{tmp_path}/in/side", tmp_path / "out" / "side")
        with pytest.raises(SandboxError, match="No such file"):
            await sandbox.download(f"{tmp_path}/nothing", tmp_path / "none")
    assert (tmp_path / "out" / "side").read_bytes() == b"\x00given"
    assert not (tmp_path / "none").exists()
    words, files, _ = next(call for call in docker.calls if call[0][0] == "exec")
    assert words[1:3] == ["--user", "7"]
    assert files == ["A=b\n"]


async def test_timeout_kills_command_in_container(docker):
    async with AsyncSandbox("docker", SandboxSpec(image="x")) as sandbox:
        began = time.monotonic()
        result = await sandbox.exec("echo begun; sleep 600 & sleep 600; echo over", timeout_s=4)
        assert time.monotonic() - began < PATIENCE_S
    assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "begun\n")
    kill = next(words for words, _, _ in docker.calls if any("kill -9" in word for word in words))
    number = re.search(r"kill -9 -(\d+)", kill[-1])[1]
    deadline = time.monotonic() + 100
    while runs(number):
        assert time.monotonic() < deadline


def runs(number):
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


async def test_container_status_and_endpoint(docker):
    async with AsyncSandbox("docker", SandboxSpec(image="x", ports=[80])) as sandbox:
        for state, status in (
            ("running", "running"),
            ("exited", "stopped"),
            ("stopped", "stopped"),
            ("created", "starting"),
            ("dead", "error"),
        ):
            docker.answers("inspect", f"{state}\n")
            assert await sandbox.status() == status
        docker.answers("inspect", "Error: No such object", code=1)
        assert await sandbox.status() == "stopped"
        docker.answers("port", "no public port", code=1)
        docker.answers("inspect", "172.17.0.2 \n")
        assert (await sandbox.endpoint(80)).endpoint == "http://172.17.0.2:80"
        docker.answers("port", "0.0.0.0:32768\n[::]:32768\n")
        assert (await sandbox.endpoint(80)).endpoint == "http://127.0.0.1:32768"


async def test_docker_failure_is_reported_as_lost_sandbox(docker):
    async with AsyncSandbox("docker", SandboxSpec(image="x")) as sandbox:
        docker.answers("exec", "Error: container is not running", code=1)
        result = await sandbox.exec("true")
    assert (result.error_type, result.return_code) == ("sandbox", -1)
    assert "not running" in result.stderr


@pytest.mark.parametrize(
    ("name", "verb", "said"),
    [
        ("docker", "run", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."),
        ("apptainer", "instance start", "FATAL: no such image"),
    ],
)
async def test_failed_start_is_reported_and_cleaned_up(tmp_path, monkeypatch, name, verb, said):
    fake = Fake(tmp_path, name, monkeypatch)
    fake.answers(verb, said, code=125)
    with pytest.raises(SandboxCreateError, match=re.escape(said)):
        await AsyncSandbox(name, SandboxSpec(image="x")).start()
    assert fake.calls[-1][0][0] in ("rm", "instance")
    assert len(fake.calls) == 2


@pytest.mark.parametrize("name", ["docker", "apptainer"])
async def test_missing_program_or_image_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxCreateError, match=f"needs the program `{name}`"):
        await AsyncSandbox(name, SandboxSpec(image="x")).start()
    Fake(tmp_path, name, monkeypatch)
    with pytest.raises(SandboxCreateError, match="needs an image"):
        await AsyncSandbox(name).start({})


@pytest.mark.parametrize("name", ["docker", "apptainer"])
async def test_relative_paths_are_below_the_workdir(tmp_path, monkeypatch, name):
    Fake(tmp_path, name, monkeypatch)
    (tmp_path / "given").write_text("given")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    spec = SandboxSpec(image="x", workdir=f"{tmp_path}/work", files={"start": "begun"})
    async with AsyncSandbox(name, spec) as sandbox:
        await sandbox.upload(tmp_path / "given", "in/side")
        await sandbox.download("in/side", tmp_path / "back")
    assert (tmp_path / "work/start").read_text() == "begun"
    assert (tmp_path / "back").read_text() == (tmp_path / "work/in/side").read_text() == "given"


async def test_apptainer_instance_from_start_to_stop(apptainer, tmp_path):
    spec = SandboxSpec(
        image="x.sif", env={"TOKEN": "s3cret"}, resources={"memory_mib": 64, "cpu": 1, "gpu": 1}, ports=[80]
    )
    async with AsyncSandbox({"apptainer": {"binds": ["/data"]}}, spec) as sandbox:
        name = sandbox.sandbox_id
        assert (await sandbox.exec("echo $A; exit 3", env={"A": "b"}, cwd="/tmp")).return_code == 3
        (tmp_path / "given").write_text("given")
        await sandbox.upload(tmp_path / "given", f"{tmp_path}/in/side")
        await sandbox.download(f"{tmp_path}/in/side", tmp_path / "back")
        apptainer.answers("instance list", f"NAME PID\n{name} 7\n")
        assert await sandbox.status() == "running"
        with pytest.raises(SandboxError, match=r"does not have a network\. Set has_network: true"):
            await sandbox.endpoint(80)
    assert (tmp_path / "back").read_text() == "given"
    words, _, inside = apptainer.calls[0]
    line = " ".join(words)
    assert words[-2:] == ["x.sif", name]
    assert "--net --network none --nv --cpus 1.0 --memory 64M --bind /data" in line
    assert "s3cret" not in line
    assert inside == {"APPTAINERENV_TOKEN": "s3cret"}
    words, _, inside = apptainer.calls[1]
    assert words[:4] == ["exec", "--pwd", "/tmp", f"instance://{name}"]
    assert inside == {"APPTAINERENV_TOKEN": "s3cret", "APPTAINERENV_A": "b"}
    assert apptainer.calls[-1][0] == ["instance", "stop", "--force", name]


async def test_command_failure_differs_from_apptainer_failure(apptainer):
    async with AsyncSandbox("apptainer", SandboxSpec(image="x")) as sandbox:
        began = time.monotonic()
        assert (await sandbox.exec("sleep 600", timeout_s=0.5)).error_type == "timeout"
        assert time.monotonic() - began < PATIENCE_S
        apptainer.answers("exec", "FATAL: no instance found", code=255)
        assert (await sandbox.exec("true")).error_type == "sandbox"


async def test_instance_is_stopped_after_its_ttl(apptainer):
    sandbox = await AsyncSandbox("apptainer", SandboxSpec(image="x", ttl_s=0.2)).start()
    deadline = time.monotonic() + 100
    while not any(words[:2] == ["instance", "stop"] for words, *_ in apptainer.calls):
        assert time.monotonic() < deadline
        await sandbox.exec("sleep 0.1")


def test_sandbox_works_on_uvloop(docker):
    async def used():
        async with AsyncSandbox("docker", SandboxSpec(image="x")) as sandbox:
            return await sandbox.exec("echo out; exit 3"), await sandbox.exec("sleep 60 & sleep 60", timeout_s=0.5)

    ended, late = uvloop.run(used())
    assert (ended.stdout, ended.return_code, late.error_type) == ("out\n", 3, "timeout")
