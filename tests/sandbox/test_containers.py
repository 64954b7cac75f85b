"""The docker provider with podman, which has the same command line."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxEndpoint,
    SandboxError,
    SandboxSpec,
)
from tests.containers.engine import PATIENCE_S, Engine, engine_with_base

pytestmark = pytest.mark.slow

SPEC = SandboxSpec(
    image="localhost/ngc-base",
    workdir="/tmp",
    env={"TOKEN": "s3cret", "LINES": "a\nb"},
    metadata={"task": "7"},
    resources={"cpu": 1, "memory_mib": 256, "pids": 50},
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with engine_with_base(Path(tempfile.mkdtemp(prefix="ngc-"))) as made:
        yield made


@pytest.fixture
def provider(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return a config block of the provider, which starts containers in the tests' own storage."""
    for name in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"):
        monkeypatch.setenv(name, engine.env[name])
    return {"docker": {"program": "podman"}}


@pytest.fixture
async def sandbox(provider: dict[str, object]) -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(provider, SPEC) as started:
        yield started


async def test_commands_see_their_folder_user_and_variables(sandbox, engine):
    shown = await sandbox.exec('pwd; echo "$TOKEN $LINES $A"; id -u; echo err >&2; exit 3', env={"A": "b"})
    assert (shown.stdout, shown.return_code) == ("/tmp\ns3cret a\nb b\n0\n", 3)
    assert shown.stderr == "err\n"
    assert (await sandbox.exec(["printf", "%s", "a b"], cwd="/usr", user=65534)).stdout == "a b"
    assert (await sandbox.exec("pwd; id -u", cwd="/usr", user=65534)).stdout == "/usr\n65534\n"
    assert (await sandbox.exec("pwd", cwd="/nowhere")).return_code == 126
    described = engine.must("podman", "inspect", sandbox.sandbox_id)
    assert '"nemo_gym.task": "7"' in described
    assert f'"Memory": {256 * 2**20}' in described


async def test_signals_become_exit_codes(sandbox):
    assert (await sandbox.exec("kill -9 $$")).return_code == 137
    assert (await sandbox.exec("no-such-program")).return_code == 127
    assert (await sandbox.exec(["no-such-program"])).return_code == 127


async def test_files_are_copied_both_ways(sandbox, tmp_path):
    (tmp_path / "given").write_bytes(bytes(range(256)) * 5_000)
    await sandbox.upload(tmp_path / "given", "in/side/file")
    await sandbox.download("/tmp/in/side/file", tmp_path / "out" / "side")
    assert (tmp_path / "out" / "side").read_bytes() == (tmp_path / "given").read_bytes()
    with pytest.raises(SandboxError, match="No such file"):
        await sandbox.download("/tmp/nothing", tmp_path / "none")
    assert not (tmp_path / "none").exists()


async def test_files_of_the_spec_are_written(provider, tmp_path):
    (tmp_path / "local").write_text("from a file")
    files = {"/data/text": "plain", "/data/bytes": b"\x00\x01", "/data/copy": tmp_path / "local"}
    async with AsyncSandbox(provider, SandboxSpec(image=SPEC.image, files=files)) as sandbox:
        assert (await sandbox.exec("cat /data/text /data/copy; wc -c < /data/bytes")).stdout == "plainfrom a file2\n"


async def test_file_that_cannot_be_written_ends_the_start(provider, engine):
    with pytest.raises(SandboxCreateError, match="/proc/x could not be written"):
        await AsyncSandbox(provider, SandboxSpec(image=SPEC.image, files={"/proc/x": "text"})).start()
    assert engine.must("podman", "ps", "--all", "--quiet") == ""


async def test_timeout_kills_the_command_and_its_children(sandbox):
    began = time.monotonic()
    late = await sandbox.exec("echo begun; sleep 611 & sleep 612", timeout_s=6)
    assert (late.error_type, late.return_code, late.stdout) == ("timeout", 124, "begun\n")
    assert time.monotonic() - began < PATIENCE_S
    count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 61[12]'"
    deadline = time.monotonic() + PATIENCE_S
    while (await sandbox.exec(["sh", "-c", count])).stdout.strip() != "0":
        assert time.monotonic() < deadline


async def test_status_follows_the_container(provider, engine):
    sandbox = AsyncSandbox(provider, SPEC)
    assert await sandbox.status() == "unknown"
    async with sandbox:
        assert await sandbox.status() == "running"
        # As after a crash: the provider has not stopped it.
        engine.must("podman", "kill", sandbox.sandbox_id)
        assert await sandbox.status() == "stopped"
        lost = await sandbox.exec("true")
        assert (lost.error_type, lost.return_code) == ("sandbox", -1)
        engine.must("podman", "rm", "--force", sandbox.sandbox_id)
        assert await sandbox.status() == "stopped"


async def test_container_ends_after_its_ttl(provider):
    sandbox = await AsyncSandbox(provider, SandboxSpec(image=SPEC.image, ttl_s=1)).start()
    deadline = time.monotonic() + PATIENCE_S
    while await sandbox.status() != "stopped":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    await sandbox.stop()


SERVER = SandboxSpec(
    image=SPEC.image,
    workdir="/tmp",
    ports=[8000],
    entrypoint=["python3", "-m", "http.server", "8000", "--directory", "/etc"],
)


async def fetched(endpoint: SandboxEndpoint) -> str:
    deadline = time.monotonic() + PATIENCE_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                reply = await client.get(f"{endpoint.endpoint}/os-release", headers=dict(endpoint.headers))
                return reply.text
            except httpx.TransportError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)


async def test_declared_port_is_published_on_this_machine(provider, engine):
    async with AsyncSandbox(provider, SERVER) as sandbox:
        endpoint = await sandbox.endpoint(8000)
        assert urlsplit(endpoint.endpoint).hostname == "127.0.0.1"
        assert "Debian" in await fetched(endpoint)
        assert "127.0.0.1:" in engine.must("podman", "port", sandbox.sandbox_id)
        with pytest.raises(ValueError, match="8001 is not among the `ports`"):
            await sandbox.endpoint(8001)


async def test_port_can_be_published_at_another_address(engine, provider):
    block = {"docker": {"program": "podman", "create": {"publish_host": "127.0.0.2"}}}
    async with AsyncSandbox(block, SERVER) as sandbox:
        endpoint = await sandbox.endpoint(8000)
        assert urlsplit(endpoint.endpoint).hostname == "127.0.0.2"
        assert "Debian" in await fetched(endpoint)


async def test_another_provider_connects_to_the_container(provider):
    async with AsyncSandbox(provider, SERVER) as sandbox:
        await sandbox.exec("echo here > file")
        connected = await AsyncSandbox.connect(await sandbox.serialize(), provider=provider)
        assert (await connected.exec("cat file")).stdout == "here\n"
        assert "Debian" in await fetched(await connected.endpoint(8000))
        await connected.stop()
        assert await sandbox.status() == "stopped"


async def test_start_waits_until_the_probe_succeeds(engine, provider):
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').status)"
    probe = {"command": f'python3 -c "{ask}"', "expected_stdout": "200", "stable_count": 2}
    async with AsyncSandbox({"docker": {"program": "podman", "probe": probe}}, SERVER) as sandbox:
        assert (await sandbox.exec(["python3", "-c", ask])).stdout == "200\n"
    probe = {"command": "echo not yet >&2; exit 4", "deadline_s": 2}
    with pytest.raises(SandboxCreateVerificationError, match="exit code 4, not yet"):
        await AsyncSandbox({"docker": {"program": "podman", "probe": probe}}, SERVER).start()
    assert engine.must("podman", "ps", "--all", "--quiet") == ""


async def test_option_groups_reach_the_container(engine, provider):
    create = {"read_only": True, "cap_drop": ["ALL"], "pids_limit": 40, "keepalive_cmd": "sleep 621", "use_init": True}
    block = {"docker": {"program": "podman", "create": create, "exec": {"exec_shell": "sh"}}}
    async with AsyncSandbox(block, SandboxSpec(image=SPEC.image)) as sandbox:
        assert "Read-only" in (await sandbox.exec("touch /usr/new")).stderr
        assert (await sandbox.exec("grep CapEff /proc/self/status")).stdout.split()[1] == "0" * 16
        assert (await sandbox.exec("echo ${BASH_VERSION:-plain}")).stdout == "plain\n"
        assert '"sleep 621"' in engine.must("podman", "inspect", sandbox.sandbox_id)
        assert engine.inspect(sandbox.sandbox_id, "{{.HostConfig.PidsLimit}}") == "40"


async def test_container_without_network_has_no_endpoint(engine, provider):
    block = {"docker": {"program": "podman", "network": "none"}}
    async with AsyncSandbox(block, SPEC) as sandbox:
        assert (await sandbox.exec("ls /sys/class/net")).stdout == "lo\n"
        descriptor = {**await sandbox.serialize(), "ports": [80]}
        connected = await AsyncSandbox.connect(descriptor, provider=block)
        with pytest.raises(SandboxError, match="no network"):
            await connected.endpoint(80)


async def test_nothing_is_left_behind(provider, engine):
    async with AsyncSandbox(provider, SPEC):
        assert "nemo_gym-" in engine.must("podman", "ps", "--format", "{{.Names}}")
    with pytest.raises(SandboxCreateError, match="could not start a sandbox of localhost/no-such-image"):
        await AsyncSandbox(
            provider, SandboxSpec(image="localhost/no-such-image", provider_options={"pull": "never"})
        ).start()
    # Without a network, because a killed podman leaves its namespace behind.
    block = {"docker": {"program": "podman", "network": "none"}}
    starting = asyncio.create_task(AsyncSandbox(block, SPEC).start())
    await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert engine.must("podman", "ps", "--all", "--quiet") == ""
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("nemo_gym-env-")]
