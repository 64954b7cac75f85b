"""Fixtures: a bubblewrap provider and one of its sandboxes."""

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec
from nemo_gym.sandbox.providers.bubblewrap import BubblewrapProvider
from nemo_gym.sandbox.providers.bubblewrap.folders import PREFIX


@pytest.fixture
async def provider(tmp_path):
    provider = BubblewrapProvider(workspaces=str(tmp_path))
    yield provider
    await provider.aclose()
    assert not list(tmp_path.glob(f"{PREFIX}*")), "workspaces are left"


@pytest.fixture
async def sandbox(provider):
    async with AsyncSandbox(provider, SandboxSpec(ports=[8000])) as sandbox:
        yield sandbox
