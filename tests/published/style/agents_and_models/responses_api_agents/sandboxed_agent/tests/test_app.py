from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient
from pytest import MonkeyPatch

import responses_api_agents.sandboxed_agent.app as app_module
from nemo_gym.config_types import ModelServerRef
from nemo_gym.sandbox import SandboxExecResult, SandboxHandle, SandboxStatus, register_provider
from nemo_gym.server_utils import ServerClient
from responses_api_agents.sandboxed_agent.app import SandboxedAgent, SandboxedAgentConfig

RESPONSE = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class PaperProvider:
    """A fake sandbox that records its commands."""

    noted: list = []

    def __init__(self, codes=None):
        self.codes = list(codes or [0, 0])

    async def create(self, spec):
        self.noted.append(("create", spec.env["GREETING"]))
        return SandboxHandle(sandbox_id="paper-1")

    async def exec(self, handle, command, cwd=None, env=None, timeout_s=None, user=None):
        self.noted.append(("exec", command))
        return SandboxExecResult(stdout="ok", stderr="", return_code=self.codes.pop(0))

    async def upload_file(self, handle, source_path, target_path):
        self.noted.append(("upload", source_path.read_text(), target_path))

    async def status(self, handle):
        return SandboxStatus.RUNNING

    async def close(self, handle):
        self.noted.append(("close", handle.sandbox_id))

    async def aclose(self):
        pass


@pytest.mark.parametrize(("code", "reward"), [(0, 1.0), (3, 0.0)])
def test_the_check_decides(monkeypatch: MonkeyPatch, code: int, reward: float) -> None:
    register_provider("paper", PaperProvider, override=True)
    PaperProvider.noted.clear()
    config = {"sandbox": {"paper": {"codes": [0, code]}, "default_metadata": {"team": "blue"}}}
    monkeypatch.setattr(app_module, "get_global_config_dict", lambda: config)
    server = SandboxedAgent(
        config=SandboxedAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            model_server=ModelServerRef(type="responses_api_models", name="m"),
        ),
        server_client=MagicMock(spec=ServerClient),
    )
    answer = AsyncMock()
    answer.ok = True
    answer.read = AsyncMock(return_value=orjson.dumps(RESPONSE))
    server.server_client.post.return_value = answer
    row = {"responses_create_params": {"input": "hi"}, "setup_script": "true", "check": "test -e done"}
    result = TestClient(server.setup_webserver()).post("/run", json=row).json()
    assert result["reward"] == reward
    assert result["sandbox"]["labels"] == {"team": "blue"}
    assert PaperProvider.noted == [
        ("create", "hello"),
        ("upload", "true", "setup.sh"),
        ("exec", "sh setup.sh"),
        ("exec", "test -e done"),
        ("close", "paper-1"),
    ]
