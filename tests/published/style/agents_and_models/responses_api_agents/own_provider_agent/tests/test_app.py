import os

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, SandboxStatus, create_provider, get_provider_class
from responses_api_agents.own_provider_agent.provider import FolderProvider


@pytest.mark.asyncio
async def test_files_and_workdir_are_the_frameworks_business() -> None:
    spec = SandboxSpec(workdir="/task", files={"/task/a": "text", "/b": "more"}, env={"A": "b"})
    async with AsyncSandbox({"folder": {"prefix": "mine-"}}) as sandbox:
        assert await sandbox.status() == SandboxStatus.UNKNOWN
        await sandbox.start(spec)
        folder = sandbox._handle.sandbox_id
        assert os.path.basename(folder).startswith("mine-")
        assert (await sandbox.exec("cat a ../b; echo $A")).stdout == "textmoreb\n"
        assert (await sandbox.exec("pwd", cwd="/")).stdout == f"{folder}\n"
        with pytest.raises(NotImplementedError):
            sandbox.spec = SandboxSpec(ports=[80])
            await sandbox.endpoint(80)
        with pytest.raises(RuntimeError):
            await sandbox.serialize()
    assert os.path.basename(folder) not in os.listdir(os.path.dirname(folder))


def test_the_provider_is_known_by_its_name() -> None:
    assert get_provider_class("folder") is FolderProvider
    assert create_provider({"folder": {}}).name == "folder"
    with pytest.raises(ValueError, match="folder"):
        get_provider_class("foldr")
