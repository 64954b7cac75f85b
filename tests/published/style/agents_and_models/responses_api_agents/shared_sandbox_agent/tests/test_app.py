import json

import pytest

import responses_api_agents.own_provider_agent.provider  # noqa: F401 - registers its providers
from nemo_gym.sandbox import (
    AsyncSandbox,
    ConnectableProvider,
    SandboxResources,
    SandboxSpec,
    SupportsSandboxEndpoint,
)
from nemo_gym.sandbox.providers import create_provider
from nemo_gym.sandbox.utils import CPU_CAP_ENV_VARS, cpu_cap_env


def test_resources_of_a_config_block() -> None:
    assert SandboxResources.from_mapping({"cpu": "2", "memory_mib": "512"}) == SandboxResources(2.0, 512)
    assert SandboxResources.from_mapping(None) == SandboxResources()
    with pytest.raises(ValueError, match="cpus"):
        SandboxResources.from_mapping({"cpus": 2})


def test_threads_are_capped() -> None:
    assert cpu_cap_env(2.5) == {name: "2" for name in CPU_CAP_ENV_VARS}
    assert cpu_cap_env(None) == {}


@pytest.mark.asyncio
async def test_the_descriptor_is_json_and_leads_to_the_sandbox() -> None:
    provider = create_provider({"connectable_folder": {}})
    assert isinstance(provider, ConnectableProvider)
    assert not isinstance(provider, SupportsSandboxEndpoint)
    sandbox = AsyncSandbox(provider, SandboxSpec(workdir="/work", env={"A": "b"}))
    await sandbox.start()
    descriptor = json.loads(json.dumps(await sandbox.serialize()))
    assert descriptor["workdir"] == "/work"
    connected = await AsyncSandbox.connect(descriptor, provider={"connectable_folder": {}})
    assert (await connected.exec("echo $A > made; pwd")).stdout == f"{sandbox._handle.sandbox_id}/work\n"
    assert (await sandbox.exec("cat made")).stdout == "b\n"
    await sandbox.stop()
