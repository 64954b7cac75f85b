from unittest.mock import MagicMock

import pytest
from pydantic import ValidationError
from pytest import MonkeyPatch

import responses_api_agents.remote_sandbox_agent.app as app_module
from nemo_gym.config_types import ModelServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.remote_sandbox_agent.app import RemoteSandboxAgent, RemoteSandboxAgentConfig


def config_of(sandbox_provider) -> RemoteSandboxAgentConfig:
    return RemoteSandboxAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        sandbox_provider=sandbox_provider,
        model_server=ModelServerRef(type="responses_api_models", name="m"),
    )


@pytest.mark.parametrize("name", ["daytona", "docker", "ecs_fargate", "enroot", "opensandbox", "openshell", "e2b"])
def test_a_server_of_any_provider_is_constructed(monkeypatch: MonkeyPatch, name: str) -> None:
    block = {name: {"domain": "sandboxes.test"}, "default_metadata": {"sandbox-api": name}}
    monkeypatch.setattr(app_module, "get_global_config_dict", lambda: {"sandbox": block})
    server = RemoteSandboxAgent(config=config_of("sandbox"), server_client=MagicMock(spec=ServerClient))
    assert server._provider == {name: {"domain": "sandboxes.test"}}
    assert server._metadata == {"sandbox-api": name}


@pytest.mark.parametrize("wrong", [{}, {"docker": {}, "daytona": {}}, {"nonsense": {}}])
def test_an_inline_provider_must_be_one_that_is_known(wrong: dict) -> None:
    assert config_of({"docker": {"create": {"network": "none"}}})
    with pytest.raises(ValidationError):
        config_of(wrong)
