"""The option groups `create`, `exec` and `probe` of docker and apptainer, with fake programs."""

import asyncio

import pytest

from nemo_gym.errors import ConfigError
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateVerificationError, SandboxSpec, create_provider
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerExecConfig, DockerProvider
from nemo_gym.sandbox.providers.probe import ProbeConfig
from tests.conftest import PATIENCE_S
from tests.each_case import each_case
from tests.sandbox.fake_programs import Fake

pytestmark = pytest.mark.slow

DOCKER = {
    "create": {
        "keepalive_shell": "/bin/dash",
        "keepalive_cmd": "sleep inf",
        "start_timeout_s": 60,
        "use_init": False,
        "network": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 99,
        "extra_run_args": ["--tty"],
        "apply_resource_limits": False,
        "publish_host": "::1",
    },
    "exec": {"default_timeout_s": 60, "extra_exec_args": ["--privileged"], "concurrency": 1, "exec_shell": "sh"},
}
APPTAINER = {
    "create": {
        "mount_point": "/own",
        "start_timeout_s": 60,
        "extra_start_args": ["--cleanenv"],
        "apply_resource_limits": False,
    },
    "exec": {
        "default_timeout_s": 60,
        "fakeroot_for_root": True,
        "default_binds": ["/data"],
        "extra_exec_args": ["--nvccli"],
        "concurrency": 2,
    },
}
LIMITED = {"cpu": 1, "memory_mib": 64, "pids": 5}


@pytest.fixture
def docker(tmp_path, monkeypatch):
    return Fake(tmp_path, "docker", monkeypatch)


@pytest.fixture
def apptainer(tmp_path, monkeypatch):
    return Fake(tmp_path, "apptainer", monkeypatch)


async def test_docker_follows_its_option_groups(docker):
    options = {"run_args": ["--hostname", "box"]}
    spec = SandboxSpec(image="x", resources=LIMITED, ports=[80], provider_options=options)
    async with AsyncSandbox({"docker": DOCKER}, spec) as sandbox:
        assert (await sandbox.exec("echo here")).stdout == "here\n"
    run = docker.words_of("run")
    line = " ".join(run)
    for part in ("--cap-drop ALL", "--security-opt no-new-privileges", "--pids-limit 99", "--network none", "--tty",
                 "--publish [::1]::80", "--read-only", "--hostname box"):  # fmt: skip
        assert part in line
    assert run[-4:] == ["x", "/bin/dash", "-c", "sleep inf"]
    assert not {"--init", "--cpus", "--memory"} & {*run}
    words = docker.words_of("exec")
    assert words[1] == "--privileged"
    assert words[-3:] == ["sh", "-c", "echo here"]


async def test_apptainer_follows_its_option_groups(apptainer, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spec = SandboxSpec(image="debian:12", resources=LIMITED, provider_options={"binds": "/more:/more"})
    async with AsyncSandbox({"apptainer": APPTAINER}, spec) as sandbox:
        await sandbox.exec("echo here", user="root")
        (own,) = tmp_path.glob("nemo_gym-mount-*")
    start = apptainer.words_of("instance start")
    line = " ".join(start)
    assert f"--bind /data --bind /more:/more --bind {own}:/own --cleanenv docker://debian:12" in line
    assert "--cpus" not in line
    assert "--nvccli" in apptainer.words_of("exec")
    assert not own.exists()


async def test_plain_image_name_means_docker(apptainer):
    for image, started in {"a/b:1": "docker://a/b:1", "library://a": "library://a", "./a": "./a", "/a": "/a"}.items():
        async with AsyncSandbox("apptainer", SandboxSpec(image=image)):
            assert apptainer.calls[-1][0][-2] == started


def test_program_of_apptainer_may_be_a_path():
    assert create_provider({"apptainer": {"bin_path": "/opt/singularity"}}).create_config.program == "/opt/singularity"


def test_groups_may_be_config_objects():
    provider = DockerProvider(
        create=DockerCreateConfig(network="none"),
        exec=DockerExecConfig(exec_shell="dash"),
        probe=ProbeConfig(command="true"),
    )
    assert (provider.create_config.network, provider.exec_config.exec_shell) == ("none", "dash")
    assert provider.probe_config.command == "true"


@each_case(
    ("name", "options", "wrong"),
    [
        ("docker", {"create": {"netwrok": "none"}}, "netwrok"),
        ("docker", {"create": {"mount_point": "/x"}}, "mount_point"),
        ("docker", {"exec": {"shell": "sh"}}, "shell"),
        ("docker", {"probe": {"commands": "true"}}, "commands"),
        ("docker", {"start": {}}, "start"),
        ("apptainer", {"exec": {"exec_shell": "sh"}}, "exec_shell"),
        ("apptainer", {"bin": "x"}, "bin"),
        ("docker", {"exec": {"concurrency": 0}}, "concurrency"),
        ("docker", {"probe": {"expected_stdout": "x"}}, "needs a command"),
    ],
)
def test_wrong_options_are_type_errors(name, options, wrong):
    with pytest.raises(TypeError, match=wrong) as refused:
        create_provider({name: options})
    assert isinstance(refused.value, ConfigError)


@pytest.mark.parametrize("name", ["docker", "apptainer"])
async def test_default_timeout_limits_commands_without_one(tmp_path, monkeypatch, name):
    Fake(tmp_path, name, monkeypatch)
    async with AsyncSandbox({name: {"exec": {"default_timeout_s": 0.5}}}, SandboxSpec(image="x")) as sandbox:
        assert (await sandbox.exec("sleep 600", timeout_s=None)).error_type == "timeout"


@pytest.mark.parametrize("name", ["docker", "apptainer"])
async def test_concurrent_commands_wait_for_each_other(tmp_path, monkeypatch, name):
    Fake(tmp_path, name, monkeypatch)
    turn = f"mkdir {tmp_path}/turn && sleep 0.2 && rmdir {tmp_path}/turn"
    async with AsyncSandbox({name: {"exec": {"concurrency": 1}}}, SandboxSpec(image="x")) as sandbox:
        results = await asyncio.gather(*(sandbox.exec(turn) for _ in range(4)))
    assert [result.return_code for result in results] == [0] * 4


@pytest.mark.parametrize("name", ["docker", "apptainer"])
async def test_start_waits_for_the_probe(tmp_path, monkeypatch, name):
    Fake(tmp_path, name, monkeypatch)
    tries = tmp_path / "tries"
    # Fails, succeeds, prints something else, and then succeeds as often as it is run.
    command = (
        f'echo >> {tries}; n=$(wc -l < {tries}); [ "$n" -eq 1 ] && exit 1; [ "$n" -eq 3 ] && echo no || echo ready'
    )
    probe = {"command": command, "expected_stdout": "ready", "stable_count": 2, "stable_delay_s": 0.01}
    probe |= {"deadline_s": PATIENCE_S, "timeout_s": PATIENCE_S}
    async with AsyncSandbox({name: {"probe": probe}}, SandboxSpec(image="x")):
        assert len(tries.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"command": "echo broken >&2; exit 3", "deadline_s": 0.1}, r"not ready after 0\.1 s.*exit code 3, broken"),
        ({"command": "echo no", "expected_stdout": "ready", "deadline_s": 0.1}, "last attempt: exit code 0, no"),
        ({"command": "sleep 600", "deadline_s": 0.1, "timeout_s": 0.2}, "last attempt: exit code 124"),
    ],
)
async def test_failed_probe_removes_the_sandbox(docker, probe, message):
    with pytest.raises(SandboxCreateVerificationError, match=message):
        await AsyncSandbox({"docker": {"probe": probe}}, SandboxSpec(image="x")).start()
    assert docker.calls[-1][0][0] == "rm"


async def test_probe_may_wait_for_the_entrypoint(apptainer, tmp_path):
    probe = {"command": f"test -e {tmp_path}/begun", "deadline_s": PATIENCE_S}
    spec = SandboxSpec(image="x", entrypoint=["touch", f"{tmp_path}/begun"])
    async with AsyncSandbox({"apptainer": {"probe": probe}}, spec):
        assert (tmp_path / "begun").exists()


async def test_probe_gives_up_on_a_lost_sandbox(docker):
    docker.answers("exec", "Error: container is not running", code=1)
    with pytest.raises(SandboxCreateVerificationError, match=r"ended before it was ready.*not running"):
        await AsyncSandbox({"docker": {"probe": {"command": "true"}}}, SandboxSpec(image="x")).start()


async def test_another_provider_connects_to_the_container(docker):
    async with AsyncSandbox("docker", SandboxSpec(image="x", workdir="/tmp")) as sandbox:
        descriptor = await sandbox.serialize()
        docker.answers("inspect", "running\n")
        connected = await AsyncSandbox.connect(descriptor, provider={"docker": {}})
        assert connected.sandbox_id == sandbox.sandbox_id
        assert (await connected.exec("pwd")).stdout == "/tmp\n"
        await connected.stop()
        assert docker.calls[-1][0] == ["rm", "--force", "--volumes", sandbox.sandbox_id]
        docker.answers("inspect", "Error: No such object", code=1)
        with pytest.raises(RuntimeError, match="is not running in this docker daemon"):
            await AsyncSandbox.connect(descriptor, provider="docker")
